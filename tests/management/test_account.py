"""manage.py account: create, list, show, change (A15, L4)."""

import pytest

from kernel.models import Account, AuditRow
from tests.management.running import done, last_act, run
from tests.support import lives

pytestmark = pytest.mark.usefixtures("kernel_db")


def test_a_created_account_has_its_cap_and_multiplier_and_an_audit_row() -> None:
    answer = done(
        "account", "create", "acme", "--name", "Acme", "--cap", "12.5", "--multiplier", "1.2"
    )
    row = Account.objects.get(id="acme")
    assert (row.name, row.cap_nano, row.multiplier_millionths) == (
        "Acme",
        12_500_000_000,
        1_200_000,
    )
    assert "cap $12.5, multiplier 1.2" in answer.out
    assert "token issue --account acme" in answer.out
    act = last_act()
    assert (act.action, act.actor_kind, act.subject) == (
        "account.create",
        "command",
        "account:acme",
    )
    assert act.actor_id


def test_an_account_has_no_cap_and_the_multiplier_one_unless_told() -> None:
    done("account", "create", "acme")
    row = Account.objects.get(id="acme")
    assert (row.name, row.cap_nano, row.multiplier_millionths) == ("acme", None, 1_000_000)
    assert not row.allow_unpriced


def test_a_multiplier_of_zero_is_a_value() -> None:
    done("account", "create", "acme", "--multiplier", "0")
    assert Account.objects.get(id="acme").multiplier_millionths == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a b"], "account_id must be 1-128 characters"),
        (["é"], "account_id must be 1-128 characters"),
        (["acme", "--cap", "abc"], "not an amount in USD: 'abc'"),
        (["acme", "--cap", "0.0000000001"], "at most 9 decimals"),
        (["acme", "--cap", "-1"], "a cap is zero or more"),
        (["acme", "--cap", "1e99"], "too large|this large"),
        (["acme", "--multiplier", "1000.1"], "between 0 and 1000"),
        (["acme", "--multiplier", "nan"], "not a multiplier"),
        (["acme", "--name", "two\nlines"], "one line"),
        (["acme", "--name", "x" * 121], "1-120 characters"),
    ],
)
def test_nonsense_is_refused_with_the_reason_and_leaves_nothing(
    words: list[str], says: str
) -> None:
    answer = run("account", "create", *words)
    assert answer.code == 1
    assert any(each in answer.error for each in says.split("|")), answer.error
    assert not Account.objects.exists()
    assert not AuditRow.objects.exists()


def test_a_second_account_of_one_name_is_refused() -> None:
    done("account", "create", "acme")
    assert "An account named acme exists." in run("account", "create", "acme").error


def test_the_list_shows_where_each_account_stands() -> None:
    assert "manage.py account create" in done("account", "list").out
    lives.open_account("acme")
    lives.open_account("zeta", cap_nano=None)
    lives.add_service()
    lives.settled("op-1")
    out = done("account", "list").out.splitlines()
    assert out[0].split() == ["ID", "NAME", "CAP", "CONSUMED", "HELD", "MULTIPLIER", "STATE"]
    assert out[1].split() == ["acme", "acme", "$1000", "$0.0000625", "$0", "1", "active"]
    assert out[2].split()[2] == "none"
    documents = done("account", "list", "--json").document
    assert [each["account_id"] for each in documents] == ["acme", "zeta"]
    assert (documents[0]["consumed_usd"], documents[1]["cap_usd"]) == ("0.0000625", None)


def test_a_list_that_was_cut_says_so_and_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("acme", "beta", "zeta"):
        lives.open_account(name)
    assert run("account", "list").error == ""
    monkeypatch.setattr("kernel.usage.accounts.LISTED_MAX", 2)
    first = run("account", "list", "--json")
    assert [each["account_id"] for each in first.document] == ["acme", "beta"]
    assert "Only 2 accounts are listed. Go on with --after beta" in first.error
    rest = run("account", "list", "--json", "--after", "beta")
    assert [each["account_id"] for each in rest.document] == ["zeta"]
    assert rest.error == ""


def test_show_says_what_is_settled_and_what_is_pending() -> None:
    lives.open_account("acme")
    lives.add_service()
    lives.settled("op-1")
    held = lives.unknown("op-2").hold_nano
    document = done("account", "show", "acme", "--json").document
    assert document["consumed_usd"] == "0.0000625"
    assert document["held_usd"] == document["pending_usd_max"] != "0"
    assert held
    assert "settled $0.0000625 + pending up to $0.0" in done("account", "show", "acme").out


def test_show_says_the_way_out_of_an_overrun() -> None:
    lives.open_account("acme")
    lives.add_service()
    lives.settled("op-1")
    done("account", "change", "acme", "--cap", "0.00001")
    out = done("account", "show", "acme").out
    assert "over its cap since" in out
    assert "account change acme --cap USD" in out
    done("account", "change", "acme", "--cap", "none")
    assert "over its cap" not in done("account", "show", "acme").out


def test_a_change_touches_only_what_was_named_and_is_audited() -> None:
    done("account", "create", "acme", "--cap", "10", "--multiplier", "2")
    answer = done(
        "account",
        "change",
        "acme",
        "--active",
        "no",
        "--allow-unpriced",
        "yes",
        "--reason",
        "left us",
    )
    row = Account.objects.get(id="acme")
    assert (row.active, row.allow_unpriced, row.version) == (False, True, 2)
    assert (row.cap_nano, row.multiplier_millionths) == (10_000_000_000, 2_000_000)
    assert "closed" in answer.out
    assert (last_act().action, last_act().reason) == ("account.change", "left us")


def test_a_change_of_nothing_or_of_nobody_says_so() -> None:
    assert "Say what to change" in run("account", "change", "acme").error
    assert "No account acme." in run("account", "change", "acme", "--cap", "1").error
    assert "No account acme." in run("account", "show", "acme").error
