"""Settlement: one ledger row per request, in bulk, from saved facts alone (A11-A14, B2, B3)."""

import json
from datetime import timedelta
from unittest import mock

import pytest
from django.db import OperationalError, connection

from kernel import clock, usage
from kernel.errors import CommitOutcomeUnknown
from kernel.models import Account, LedgerRow, Request
from kernel.money import usd_to_nano
from kernel.runtime.maintenance import PageReport
from kernel.usage import settlement
from kernel.usage.settlement import settle, settlement_page
from tests.support.commits import LANDED, VANISHED, at_commit
from tests.support.product import (
    OPERATOR,
    ask,
    assert_invariants,
    make_account,
    make_service,
)
from tests.usage.flow import (
    CHARGE_NANO,
    USAGE,
    Statements,
    answered,
    body_with,
    row_of,
    states,
)


@pytest.fixture
def acme(kernel_db: None) -> None:
    make_account()
    make_service(max_output_tokens=100)


def page(cursor: object = None, limit: int = 50) -> PageReport:
    return settlement_page(cursor=cursor, limit=limit)


def many(count: int, *, account_id: str = "acme") -> list[str]:
    return [answered(f"op-{number:03}", account_id=account_id) for number in range(count)]


def corrupt(request_id: str, **values: str) -> None:
    """Damage a stored fact behind the product's back."""
    Request.objects.filter(id=request_id).update(**(values or {"usage_text": '{"meters": 7}'}))


# --- one charge -------------------------------------------------------------------------------


def test_a_charge_is_metering_times_frozen_price_times_frozen_multiplier(kernel_db: None) -> None:
    make_account(multiplier_millionths=1_250_000)
    make_service()
    request_id = answered()
    (found,) = settle(items=[request_id])
    assert (found.billing_state, found.pending_reason) == ("settled", "")
    row, ledger = row_of(request_id), LedgerRow.objects.get()
    assert (ledger.amount_nano, ledger.reference_nano) == (78_125, 62_500)
    assert (row.billed_nano, row.reference_nano) == (78_125, 62_500)
    assert ledger.charge_of == ledger.request_id == request_id
    facts = json.loads(ledger.lines_text)
    assert facts["lines"] == [["input", 9, "2.5", "0.0000225"], ["output", 4, "10", "0.00004"]]
    assert facts["reference_usd"] == "0.0000625"
    assert facts["price"] == json.loads(row.price_text)
    assert Account.objects.get().consumed_nano == 78_125
    assert_invariants()


def test_a_later_price_or_multiplier_never_touches_an_admitted_request(acme: None) -> None:
    request_id = answered()
    usage.change_account(
        account_id="acme", version=1, actor=OPERATOR, multiplier_millionths=5_000_000
    )
    usage.add_price(
        provider="openai",
        model="gpt-4o",
        rates={"input": "100", "output": "100"},
        valid_from_at=clock.now() - timedelta(days=1),
        actor=OPERATOR,
    )
    settle(items=[request_id])
    assert row_of(request_id).billed_nano == CHARGE_NANO


def test_settling_again_charges_nothing_more(acme: None) -> None:
    request_id = answered()
    for _ in range(3):
        assert settle(items=[request_id])[0].billing_state == "settled"
        page()
    assert LedgerRow.objects.count() == 1
    assert Account.objects.get().consumed_nano == CHARGE_NANO
    assert_invariants()


@pytest.mark.parametrize("what", [LANDED, VANISHED])
def test_a_lost_acknowledgement_moves_the_balance_once(acme: None, what: str) -> None:
    request_id = answered()
    with at_commit("settle", what), pytest.raises(CommitOutcomeUnknown):
        settle(items=[request_id])
    assert settle(items=[request_id])[0].billing_state == "settled"
    assert LedgerRow.objects.count() == 1
    assert Account.objects.get().consumed_nano == CHARGE_NANO
    assert_invariants()


def test_ledger_account_and_request_are_one_transaction(acme: None) -> None:
    request_id = answered()
    with (
        mock.patch.object(settlement, "consume_in_tx", side_effect=OperationalError(1114, "full")),
        pytest.raises(OperationalError),
    ):
        settle(items=[request_id])
    assert not LedgerRow.objects.exists()
    assert states(request_id) == ("complete", "pending", "")
    assert_invariants()


def test_a_settled_hold_is_given_back_and_an_overrun_is_flagged(kernel_db: None) -> None:
    make_account(cap_nano=10**9)
    make_service(max_output_tokens=100)
    request_id = answered(body=body_with({"prompt_tokens": 9, "completion_tokens": 200_000}))
    settle(items=[request_id])
    account = Account.objects.get()
    assert account.consumed_nano == 9 * 2500 + 200_000 * 10_000, "posted in full, never clamped"
    assert account.consumed_nano > account.cap_nano
    assert account.overrun_at is not None
    assert account.held_nano == 0
    assert_invariants()


def test_a_reported_zero_is_a_charge_of_zero(acme: None) -> None:
    request_id = answered(body=body_with({"prompt_tokens": 0, "completion_tokens": 0}))
    settle(items=[request_id])
    assert states(request_id) == ("complete", "settled", "")
    assert row_of(request_id).billed_nano == 0
    assert LedgerRow.objects.get().amount_nano == 0


# --- what waits -------------------------------------------------------------------------------

WAITING = {
    "no_usage": None,
    "invalid_usage": {"prompt_tokens": None, "completion_tokens": 4},
    "inconsistent_usage": {
        "prompt_tokens": 5,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 6},
    },
    "implausible_usage": {"prompt_tokens": 10**12, "completion_tokens": 4},
    "unpriced_unit": {
        "prompt_tokens": 1000,
        "completion_tokens": 4,
        "prompt_tokens_details": {"audio_tokens": 1000},
    },
}


@pytest.mark.parametrize("reason", WAITING)
def test_what_cannot_be_charged_waits_with_its_reason_and_keeps_its_hold(
    kernel_db: None, reason: str
) -> None:
    make_account(cap_nano=10**12)
    make_service(max_output_tokens=100)
    request_id = answered(body=body_with(WAITING[reason]))
    report = page()
    assert (report.scanned, report.settled, report.deferred, report.failed) == (1, 0, 1, 0)
    assert states(request_id) == ("complete", "pending", reason)
    assert not LedgerRow.objects.exists()
    assert Account.objects.get().held_nano > 0
    assert_invariants()


def test_recording_a_deferral_does_not_move_the_row_in_the_page_order(acme: None) -> None:
    request_id = answered(body=body_with(WAITING["unpriced_unit"]))
    before = row_of(request_id).updated_at
    for _ in range(2):
        page()
        assert row_of(request_id).updated_at == before


def unpriced(operation_id: str = "op-1") -> str:
    make_account(allow_unpriced=True)
    make_service(price_provider="openai", price_model="no-such-model")
    return answered(operation_id)


def add_price(valid_from_at, *, model: str = "no-such-model", output: str = "2") -> None:
    usage.add_price(
        provider="openai",
        model=model,
        rates={"input": "1", "output": output},
        valid_from_at=valid_from_at,
        actor=OPERATOR,
    )


def test_an_unpriced_request_is_priced_once_by_a_price_valid_at_its_admission(
    kernel_db: None,
) -> None:
    request_id = unpriced()
    assert page().deferred == 1
    assert states(request_id)[2] == "unpriced"
    add_price(row_of(request_id).admitted_at)
    assert page().settled == 1
    row = row_of(request_id)
    assert row.billed_nano == 9 * 1000 + 4 * 2000
    assert json.loads(row.price_text)["source"] == "operator"
    assert json.loads(row.price_text)["version"] == "1"
    add_price(row.admitted_at, output="9")
    assert page().scanned == 0
    assert row_of(request_id).billed_nano == row.billed_nano
    assert_invariants()


def test_a_price_that_became_valid_after_the_admission_is_not_used(kernel_db: None) -> None:
    request_id = unpriced()
    add_price(row_of(request_id).admitted_at + timedelta(microseconds=1))
    assert page().deferred == 1
    assert states(request_id)[1:] == ("pending", "unpriced")


def test_another_models_price_is_not_guessed(kernel_db: None) -> None:
    request_id = unpriced()
    add_price(row_of(request_id).admitted_at, model="no-such-model-2")
    assert page().deferred == 1


# --- pages ------------------------------------------------------------------------------------


def test_a_page_settles_in_bulk_with_a_constant_number_of_statements(acme: None) -> None:
    def statements_for(count: int, prefix: str) -> int:
        for number in range(count):
            answered(f"{prefix}-{number}")
        statements = Statements()
        with connection.execute_wrapper(statements):
            assert page().settled == count
        return len(statements.texts)

    assert statements_for(40, "many") <= statements_for(2, "few") + 2
    assert_invariants()


def test_a_pass_reads_no_body_and_nothing_but_settles(acme: None) -> None:
    many(5)
    statements = Statements()
    with connection.execute_wrapper(statements):
        page()
    assert statements.touching("bz_usage_bodies") == []
    assert statements.touching("fence_token") == []


def test_pages_walk_everything_once_in_order_and_wrap(acme: None) -> None:
    ids = many(25)
    unsettled = [answered(f"zz-{n}", body=body_with(None)) for n in range(3)]
    cursor, reports = None, []
    while True:
        reports.append(page(cursor, limit=10))
        cursor = reports[-1].cursor
        if cursor is None:
            break
    assert [report.scanned for report in reports] == [10, 10, 8]
    assert [report.settled for report in reports] == [10, 10, 5]
    assert all(states(each)[1] == "settled" for each in ids)
    assert page(None, limit=10).scanned == len(unsettled), "the next walk starts at the beginning"


def test_rows_of_one_moment_are_neither_skipped_nor_seen_twice(acme: None) -> None:
    ids = [answered(f"op-{number:02}", body=body_with(None)) for number in range(9)]
    Request.objects.update(updated_at=clock.now())
    seen, cursor = 0, None
    while True:
        report = page(cursor, limit=4)
        seen, cursor = seen + report.scanned, report.cursor
        if cursor is None:
            break
    assert seen == len(ids)


def test_a_full_last_page_is_followed_by_an_empty_one(acme: None) -> None:
    many(4)
    first = page(limit=4)
    assert first.has_more
    last = page(first.cursor, limit=4)
    assert (last.scanned, last.has_more) == (0, False)


# --- money ------------------------------------------------------------------------------------


def test_a_charge_no_column_can_hold_waits_instead_of_wrapping(kernel_db: None) -> None:
    make_account(multiplier_millionths=1_000_000_000)
    make_service()
    usage.add_price(
        provider="openai",
        model="gpt-4o",
        rates={"input": "1000000000", "output": "1000000000"},
        valid_from_at=None,
        confirm=True,
        actor=OPERATOR,
    )
    counts = {"prompt_tokens": 10**9, "completion_tokens": 10**9}
    request_id = answered(ask("big"), body=body_with(counts))
    assert page().failed == 1
    assert states(request_id)[1:] == ("pending", "corrupt")
    assert usd_to_nano("9223372036") < 10**19


def test_small_charges_are_rounded_once_and_keep_their_exact_reference(kernel_db: None) -> None:
    make_account(multiplier_millionths=333_333)
    make_service()
    request_id = answered(body=body_with({"prompt_tokens": 1, "completion_tokens": 0}))
    settle(items=[request_id])
    assert row_of(request_id).billed_nano == 833, "2500 x 0.333333 = 833.3325"
    assert json.loads(LedgerRow.objects.get().lines_text)["reference_usd"] == "0.0000025"
    assert USAGE["prompt_tokens"] == 9
