"""manage.py account correct: a settled charge is put right by a new ledger row (A11b, L4)."""

import io

import pytest

from kernel.models import Account, LedgerRow
from tests.management.running import done, last_act, run
from tests.support import lives

WHY = ["--reason", "invoice 4711"]


@pytest.fixture(autouse=True)
def charged(kernel_db: None) -> str:
    lives.open_account()
    lives.add_service()
    return lives.settled("op-1").id


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def consumed() -> int:
    return Account.objects.get(id="acme").consumed_nano


@pytest.mark.parametrize("words", [["--amount=-0.0000025"], ["--total", "0.00006"]])
def test_it_shows_what_will_be_asks_and_posts(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, "yes\n")
    answer = done("account", "correct", "op-1", *words, *WHY)
    assert "$0.0000625 now, corrected by $-0.0000025 to $0.00006" in answer.out
    entry = LedgerRow.objects.get(kind="correction")
    assert f"Ledger row {entry.id}: correction of $-0.0000025." in answer.out
    assert (entry.amount_nano, consumed()) == (-2_500, 60_000)
    act = last_act()
    assert (act.action, act.actor_kind, act.reason) == (
        "request.correct",
        "command",
        "invoice 4711",
    )


@pytest.mark.parametrize("text", ["", "no\n", "\n"])
def test_anything_but_yes_changes_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, text)
    answer = run("account", "correct", "op-1", "--amount", "1", *WHY)
    assert (answer.code, answer.error) == (1, "Nothing was changed.")
    assert consumed() == lives.CHARGE_NANO


def test_with_a_key_a_repeat_does_nothing(charged: str) -> None:
    words = ["account", "correct", charged, "--amount", "1", "--yes", "--key", "invoice-4711", *WHY]
    done(*words)
    again = run(*words)
    assert again.code == 1
    assert "sent before" in again.error
    assert LedgerRow.objects.filter(kind="correction").count() == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["op-1", "--amount", "0", *WHY], "zero changes nothing"),
        (["op-1", "--amount=-1", *WHY], "below zero"),
        (["op-1", "--amount", "1", "--reason", " "], "few words"),
        (["op-1", "--amount", "1", "--key", "a b", *WHY], "key must be 1-56 characters"),
        (["op-9", "--amount", "1", *WHY], "No operation and no request op-9"),
        (["op-2", "--amount", "1", *WHY], "is not settled but pending"),
    ],
)
def test_what_is_no_correction_is_refused_with_its_reason(words: list[str], says: str) -> None:
    lives.complete("op-2")
    answer = run("account", "correct", *words, "--yes")
    assert answer.code == 1
    assert says in answer.error
    assert consumed() == lives.CHARGE_NANO


def test_explain_charge_shows_corrections_and_the_total() -> None:
    done("account", "correct", "op-1", "--amount=-0.0000025", "--yes", *WHY)
    entry = LedgerRow.objects.get(kind="correction")
    answer = done("explain_charge", "op-1")
    assert f"Correction {entry.id}: $-0.0000025" in answer.out
    assert "invoice 4711" in answer.out
    assert "Charge and corrections: $0.00006." in answer.out
    document = done("explain_charge", "op-1", "--json").document
    assert document["ledger"]["amount_usd"] == "0.0000625"
    assert document["total_usd"] == "0.00006"
    assert document["agrees"] is True
    (correction,) = document["corrections"]
    assert (correction["amount_usd"], correction["reason"]) == ("-0.0000025", "invoice 4711")
    assert correction["by"].startswith("command:")
