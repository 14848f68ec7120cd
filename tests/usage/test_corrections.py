"""A settled charge is put right by a new ledger row; the charge itself never changes (A11b)."""

import json
from dataclasses import replace
from typing import Any

import pytest

from kernel import audit, usage
from kernel.audit import AlreadyDone
from kernel.errors import InvalidInput, LostRace, NotFound
from kernel.models import Account, AuditRow, LedgerRow, Request
from kernel.money import NANO_MAX
from kernel.usage.corrections import NotSettled
from tests.support.product import (
    OPERATOR,
    admitted,
    ask,
    assert_invariants,
    make_account,
    make_service,
)
from tests.usage.flow import CHARGE_NANO, answered, at_once, row_of

WHY = "the provider withdrew half of its invoice"


@pytest.fixture
def charged(kernel_db: None) -> str:
    """A settled request of an account with a cap; its id."""
    make_account(cap_nano=10**12)
    make_service(max_output_tokens=100)
    request_id = answered()
    usage.settle(items=[request_id])
    assert row_of(request_id).billing_state == "settled"
    return request_id


def correct(request_id: str, amount_nano: int | None = None, **more: Any) -> LedgerRow:
    values = {"actor": OPERATOR, "reason": WHY, **more}
    return usage.post_correction(request_id=request_id, amount_nano=amount_nano, **values)


def consumed() -> int:
    return Account.objects.get(id="acme").consumed_nano


def amounts() -> list[int]:
    return list(
        LedgerRow.objects.order_by("created_at", "id").values_list("amount_nano", flat=True)
    )


@pytest.mark.parametrize("amount", [-CHARGE_NANO, -1, 1, 40_000])
def test_a_correction_is_a_new_row_and_the_settled_row_stays(charged: str, amount: int) -> None:
    def frozen() -> tuple[Any, Any]:
        request = Request.objects.filter(id=charged).values().get()
        return request, LedgerRow.objects.filter(charge_of=charged).values().get()

    before = frozen()
    entry = correct(charged, amount)
    assert frozen() == before
    stored = LedgerRow.objects.get(id=entry.id)
    assert (stored.kind, stored.charge_of, stored.request_id) == ("correction", None, charged)
    assert (stored.amount_nano, stored.account_id) == (amount, "acme")
    facts = json.loads(stored.lines_text)
    assert facts == {"corrects": before[1]["id"], "reason": WHY, "by": "user:olga"}
    assert consumed() == sum(amounts()) == CHARGE_NANO + amount
    assert_invariants()


def test_a_correction_is_audited_with_the_total_before_and_after(charged: str) -> None:
    entry = correct(charged, -500)
    act = AuditRow.objects.get(action="request.correct")
    assert (act.subject, act.actor_id, act.reason) == (f"request:{charged}", "olga", WHY)
    assert json.loads(act.before_text) == {"total_nano": CHARGE_NANO}
    assert json.loads(act.after_text) == {
        "total_nano": CHARGE_NANO - 500,
        "correction_nano": -500,
        "ledger_id": entry.id,
    }
    assert list(audit.verify()) == []


def test_a_corrected_total_posts_the_difference(charged: str) -> None:
    assert correct(charged, total_nano=100).amount_nano == 100 - CHARGE_NANO
    assert correct(charged, total_nano=300).amount_nano == 200
    assert consumed() == 300
    with pytest.raises(InvalidInput, match="zero changes nothing"):
        correct(charged, total_nano=300)
    assert len(amounts()) == 3


def test_corrections_are_explained_beside_the_charge(charged: str) -> None:
    correct(charged, -500)
    correct(charged, 20, reason="half of it was right")
    found = usage.explain_charge(request=row_of(charged))
    assert found.agrees is True
    assert [(one.ledger.amount_nano, one.by, one.reason) for one in found.corrections] == [
        (-500, "user:olga", WHY),
        (20, "user:olga", "half of it was right"),
    ]
    assert found.total_nano == CHARGE_NANO - 480
    assert row_of(charged).billed_nano == CHARGE_NANO


def test_settling_again_after_a_correction_charges_nothing_more(charged: str) -> None:
    correct(charged, -500)
    usage.settle(items=[charged])
    assert sorted(amounts()) == [-500, CHARGE_NANO]
    assert_invariants()


@pytest.mark.parametrize(
    ("amounts_given", "field", "says"),
    [
        ({"amount_nano": 0}, "amount_nano", "zero changes nothing"),
        ({"total_nano": CHARGE_NANO}, "total_nano", "zero changes nothing"),
        ({"amount_nano": -CHARGE_NANO - 1}, "amount_nano", "below zero"),
        ({"total_nano": -1}, "total_nano", "below zero"),
        ({"amount_nano": NANO_MAX}, "amount_nano", "cannot be stored"),
        ({"amount_nano": NANO_MAX + 1}, "amount_nano", "whole number"),
        ({"amount_nano": 1.5}, "amount_nano", "whole number"),
        ({"amount_nano": True}, "amount_nano", "whole number"),
        ({}, "amount_nano", "not both"),
        ({"amount_nano": 1, "total_nano": 1}, "amount_nano", "not both"),
        ({"amount_nano": 1, "reason": " \n "}, "reason", "few words"),
        ({"amount_nano": 1, "reason": "x" * 4001}, "reason", "few words"),
    ],
)
def test_what_is_no_correction_is_refused_and_leaves_nothing(
    charged: str, amounts_given: dict[str, Any], field: str, says: str
) -> None:
    acts = AuditRow.objects.count()
    with pytest.raises(InvalidInput, match=says) as caught:
        correct(charged, **amounts_given)
    assert caught.value.field == field
    assert (amounts(), consumed()) == ([CHARGE_NANO], CHARGE_NANO)
    assert AuditRow.objects.count() == acts


def test_a_sum_that_would_not_fit_the_account_is_refused(charged: str) -> None:
    second = answered("op-2")
    usage.settle(items=[second])
    correct(charged, total_nano=NANO_MAX - CHARGE_NANO)
    assert consumed() == NANO_MAX
    with pytest.raises(InvalidInput, match="would not fit"):
        correct(second, 1)
    assert consumed() == NANO_MAX == sum(amounts())


def test_what_is_not_settled_cannot_be_corrected(charged: str) -> None:
    waiting = answered("op-2")
    for request_id in (waiting, admitted(ask("op-3")).id):
        with pytest.raises(NotSettled) as caught:
            correct(request_id, 5)
        assert caught.value.status == 409
    with pytest.raises(NotFound):
        correct("req_nobody", 5)
    assert amounts() == [CHARGE_NANO]


def test_a_total_that_changed_since_it_was_seen_is_a_lost_race(charged: str) -> None:
    correct(charged, -500, seen_total_nano=CHARGE_NANO)
    with pytest.raises(LostRace):
        correct(charged, -500, seen_total_nano=CHARGE_NANO)
    assert consumed() == CHARGE_NANO - 500


@pytest.mark.parametrize("amount", [-40_000, 7])
def test_the_same_form_sent_again_is_already_done(charged: str, amount: int) -> None:
    actor = replace(OPERATOR, act_key="form-1")
    correct(charged, amount, actor=actor, seen_total_nano=CHARGE_NANO)
    for seen in (CHARGE_NANO, CHARGE_NANO + amount, None):
        with pytest.raises(AlreadyDone):
            correct(charged, amount, actor=actor, seen_total_nano=seen)
    assert amounts() == [CHARGE_NANO, amount]


def test_one_form_sent_twice_at_once_is_posted_once(charged: str) -> None:
    actor = replace(OPERATOR, act_key="form-1")
    outcomes = at_once(*[lambda: correct(charged, -40_000, actor=actor)] * 4)
    assert sorted(type(one).__name__ for one in outcomes) == ["AlreadyDone"] * 3 + ["LedgerRow"]
    assert amounts() == [CHARGE_NANO, -40_000]
    assert_invariants()


def test_corrections_at_once_never_take_a_charge_below_zero(charged: str) -> None:
    outcomes = at_once(*[lambda: correct(charged, -20_000)] * 6)
    assert sum(isinstance(one, LedgerRow) for one in outcomes) == 3
    assert consumed() == CHARGE_NANO - 60_000
    assert_invariants()


def test_a_correction_flags_and_clears_the_overrun(charged: str) -> None:
    Account.objects.filter(id="acme").update(cap_nano=CHARGE_NANO + 100)

    def overrun() -> bool:
        return Account.objects.get(id="acme").overrun_at is not None

    correct(charged, 101)
    assert overrun()
    assert_invariants()
    correct(charged, -1)
    assert not overrun()
    assert_invariants()


def test_an_account_without_a_cap_is_corrected_too(kernel_db: None) -> None:
    make_account()
    make_service()
    request_id = answered()
    usage.settle(items=[request_id])
    correct(request_id, -CHARGE_NANO)
    assert consumed() == 0
    assert_invariants()


def test_a_failed_audit_row_leaves_no_correction(
    charged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: Any) -> None:
        raise RuntimeError("no audit")

    monkeypatch.setattr(audit, "append_in_tx", fails)
    with pytest.raises(RuntimeError, match="no audit"):
        correct(charged, 5)
    assert (amounts(), consumed()) == ([CHARGE_NANO], CHARGE_NANO)
