"""Accounts: cap, multiplier, what they stand at; every change has a version and an author (A15)."""

from typing import Any

import pytest
from django.db import connection

from kernel import usage
from kernel.errors import Conflict, InvalidId, InvalidInput, LostRace, NotFound
from kernel.models import Account, AuditRow
from kernel.usage import account_summary, change_account, create_account, list_accounts
from tests.support.product import OPERATOR, ask, assert_invariants, make_account, make_service
from tests.usage.flow import CHARGE_NANO, Statements, answered, at_once, body_with, dispatched


def test_an_account_is_created_once_and_audited(kernel_db: None) -> None:
    make_account(cap_nano=5)
    with pytest.raises(Conflict) as refusal:
        make_account()
    assert refusal.value.details["field"] == "account_id"
    (row,) = AuditRow.objects.filter(subject="account:acme")
    assert (row.action, row.actor_id) == ("account.create", "olga")
    assert '"cap_nano": 5' in row.after_text


def test_of_two_creations_at_once_one_wins_and_the_other_is_told(kernel_db: None) -> None:
    found = at_once(make_account, make_account)
    assert sorted(type(one).__name__ for one in found) == ["Account", "Conflict"]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"cap_nano": -1}, "cap_nano"),
        ({"cap_nano": 2**63}, "cap_nano"),
        ({"cap_nano": True}, "cap_nano"),
        ({"cap_nano": 1.5}, "cap_nano"),
        ({"multiplier_millionths": -1}, "multiplier"),
        ({"multiplier_millionths": 1_000_000_001}, "multiplier"),
        ({"allow_unpriced": "no"}, "allow_unpriced"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_stored(
    kernel_db: None, values: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        create_account(**{"account_id": "a", "name": "A", "actor": OPERATOR, **values})
    assert refusal.value.field == field
    assert list_accounts() == ([], False)


def test_an_account_id_is_an_id(kernel_db: None) -> None:
    with pytest.raises(InvalidId):
        make_account("Müller")


def test_a_change_needs_the_version_it_was_made_from(kernel_db: None) -> None:
    make_account()
    row = change_account(account_id="acme", version=1, actor=OPERATOR, cap_nano=7, reason="budget")
    assert (row.version, row.cap_nano) == (2, 7)
    with pytest.raises(LostRace):
        change_account(account_id="acme", version=1, actor=OPERATOR, cap_nano=9)
    assert Account.objects.get().cap_nano == 7
    audit = AuditRow.objects.filter(subject="account:acme").order_by("-sequence")[0]
    assert audit.reason == "budget"
    assert '"cap_nano": null' in audit.before_text


def test_of_two_changes_at_once_one_wins(kernel_db: None) -> None:
    make_account()
    found = at_once(
        lambda: change_account(account_id="acme", version=1, actor=OPERATOR, cap_nano=1),
        lambda: change_account(account_id="acme", version=1, actor=OPERATOR, cap_nano=2),
    )
    assert sorted(type(one).__name__ for one in found) == ["Account", "LostRace"]
    assert Account.objects.get().version == 2


def test_an_unknown_field_or_account_is_an_error(kernel_db: None) -> None:
    make_account()
    with pytest.raises(InvalidInput, match="consumed_nano"):
        change_account(account_id="acme", version=1, actor=OPERATOR, consumed_nano=0)
    with pytest.raises(NotFound):
        change_account(account_id="ghost", version=1, actor=OPERATOR, name="x")


def test_the_overrun_follows_the_cap(kernel_db: None) -> None:
    make_account()
    make_service()
    usage.settle(items=[answered()])

    def overrun_with(cap: int | None) -> bool:
        version = Account.objects.get().version
        row = change_account(account_id="acme", version=version, actor=OPERATOR, cap_nano=cap)
        return row.overrun_at is not None

    assert overrun_with(CHARGE_NANO - 1), "a cap below what was consumed is an overrun at once"
    assert not overrun_with(CHARGE_NANO)
    assert overrun_with(0)
    assert not overrun_with(None)
    assert_invariants()


def test_a_change_never_moves_what_was_consumed_or_held(kernel_db: None) -> None:
    make_account(cap_nano=10**12)
    make_service(max_output_tokens=10)
    usage.settle(items=[answered("op-1")])
    dispatched("op-2")
    before = Account.objects.values("consumed_nano", "held_nano").get()
    change_account(account_id="acme", version=1, actor=OPERATOR, name="Other", cap_nano=10**13)
    assert Account.objects.values("consumed_nano", "held_nano").get() == before


# --- what an account stands at ----------------------------------------------------------------


def test_a_summary_says_settled_held_and_pending_at_most(kernel_db: None) -> None:
    make_account(cap_nano=10**12)
    make_service(max_output_tokens=100)
    usage.settle(items=[answered("settled")])
    answered("waits", body=body_with(None))
    dispatched("runs")
    found = account_summary(account_id="acme")
    hold = len(ask("waits").body) * 2500 + 100 * 10_000
    assert found.consumed_nano == CHARGE_NANO
    assert found.pending_nano_max == hold
    assert found.held_nano == found.account.held_nano > hold
    assert not found.unknown_pending


def test_pending_without_a_hold_has_no_bound(kernel_db: None) -> None:
    make_account()
    make_service()
    assert not account_summary(account_id="acme").unknown_pending
    answered("waits", body=body_with(None))
    assert account_summary(account_id="acme").unknown_pending


def test_another_accounts_requests_do_not_count(kernel_db: None) -> None:
    make_account()
    make_account("other")
    make_service()
    answered("waits", body=body_with(None), account_id="other")
    found = account_summary(account_id="acme")
    assert (found.pending_nano_max, found.unknown_pending) == (0, False)


def test_every_figure_is_from_one_statement_hence_one_snapshot(kernel_db: None) -> None:
    make_account()
    statements = Statements()
    with connection.execute_wrapper(statements):
        account_summary(account_id="acme")
    assert len([text for text in statements.texts if text.startswith("SELECT")]) == 1


def test_there_is_no_summary_without_an_account(kernel_db: None) -> None:
    with pytest.raises(NotFound):
        account_summary(account_id="ghost")
