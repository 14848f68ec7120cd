"""Settlement: one ledger row per request, bulk pages, isolation of bad rows (A11-A14, B2, B3)."""

import asyncio
import json
from datetime import timedelta
from unittest import mock

import pytest
from django.db import IntegrityError, OperationalError, connection

from kernel import clock, usage
from kernel.errors import CommitOutcomeUnknown
from kernel.ids import new_id
from kernel.models import Account, LedgerRow, Request
from kernel.money import usd_to_nano
from kernel.runtime import Database, Pass
from kernel.runtime.maintenance import PageReport
from kernel.usage import settlement
from kernel.usage.settlement import settle, settlement_page
from tests.support.commits import AWAY, LANDED, VANISHED, at_commit
from tests.support.product import (
    OPERATOR,
    ask,
    assert_invariants,
    ledger_total,
    make_account,
    make_service,
)
from tests.usage.flow import (
    CHARGE_NANO,
    USAGE,
    Statements,
    answered,
    at_once,
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


# --- bad rows ---------------------------------------------------------------------------------

DAMAGES = {
    "metering is no metering": {"usage_text": '{"meters": 7}'},
    "metering is no JSON": {"usage_text": "\x00 not json"},
    "metering is nested too deeply": {"usage_text": "[" * 60_000},
    "meters are negative": {"usage_text": '{"meters": {"input": -5, "output": 1}}'},
    "meters are fractions": {"usage_text": '{"meters": {"input": 1.5, "output": 1}}'},
    "price is no price": {"price_text": '{"format": 1}'},
    "price is a list": {"price_text": "[]"},
    "rates are words": {
        "price_text": '{"format":1,"source":"s","version":"1","provider":"p","model":"m",'
        '"rates":{"input":[[0,"cheap"]]}}'
    },
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_corrupt_row_is_set_aside_with_a_reason_and_49_others_settle(
    acme: None, damage: str
) -> None:
    ids = many(50)
    corrupt(ids[20], **DAMAGES[damage])
    report = page()
    assert (report.scanned, report.settled, report.deferred, report.failed) == (50, 49, 0, 1)
    assert states(ids[20])[1:] == ("pending", "corrupt")
    assert ledger_total() == 49 * CHARGE_NANO == Account.objects.get().consumed_nano


def poisoned_by_the_database(request_id: str) -> None:
    """A charge for it exists already: inserting another one breaks the whole page's statement."""
    row = row_of(request_id)
    LedgerRow.objects.create(
        id=new_id("led"),
        account_id=row.account_id,
        request_id=row.id,
        charge_of=row.id,
        kind="charge",
        amount_nano=1,
        reference_nano=1,
        multiplier_millionths=1_000_000,
        lines_text="{}",
        created_at=clock.now(),
    )


def test_a_row_that_breaks_the_pages_statement_is_set_aside_and_49_others_settle(
    acme: None,
) -> None:
    ids = many(50)
    poisoned_by_the_database(ids[49])
    with pytest.raises(IntegrityError):
        settle(items=ids)
    report = page()
    assert (report.settled, report.failed) == (49, 1)
    assert states(ids[49])[1:] == ("pending", "corrupt")
    assert all(states(each)[1] == "settled" for each in ids[:49])


def test_a_bad_row_alone_on_its_page_is_set_aside_too(acme: None) -> None:
    request_id = answered()
    poisoned_by_the_database(request_id)
    report = page()
    assert (report.scanned, report.settled, report.failed) == (1, 0, 1)
    assert states(request_id)[2] == "corrupt"


async def test_bad_rows_never_back_a_pass_off(kernel_db: None) -> None:
    database = Database()

    def prepare() -> list[str]:
        make_account()
        make_service()
        ids = many(7)
        poisoned_by_the_database(ids[0])
        corrupt(ids[3])
        return ids

    ids = await database.in_tx(prepare)
    one = Pass(
        name="settlement",
        owner="krn-1",
        database=database,
        page=settlement_page,
        interval_seconds=60,
        page_rows=3,
        budget_seconds=20,
    )
    await one.run()
    assert one.backoff.wait_seconds == 0
    assert (one.totals.scanned, one.totals.settled, one.totals.failed) == (7, 5, 2)
    later = await database.in_tx(answered, item="later")
    await one.run()
    assert (await database.in_tx(states, row=later))[1] == "settled"
    assert (await database.in_tx(states, row=ids[0]))[2] == "corrupt"
    assert await database.drain(asyncio.get_running_loop().time() + 5)
    database.close()


def test_a_database_that_is_away_concerns_the_whole_page(acme: None) -> None:
    many(3)
    with at_commit("settle", AWAY, times=4) as fault, pytest.raises(OperationalError):
        page()
    assert fault.fired == 4, "not row by row"
    with at_commit("settle", VANISHED), pytest.raises(CommitOutcomeUnknown):
        page()
    assert page().settled == 3


def test_where_even_setting_aside_fails_the_database_is_at_fault(acme: None) -> None:
    many(2)
    with (
        mock.patch.object(settlement, "post_charges_in_tx", side_effect=OperationalError(1114, "")),
        mock.patch.object(settlement, "_set_aside", side_effect=OperationalError(1114, "full")),
        pytest.raises(OperationalError),
    ):
        page()
    assert page().settled == 2


# --- many at once -----------------------------------------------------------------------------


def test_two_settlers_at_once_charge_each_request_once(acme: None) -> None:
    ids = many(20)
    at_once(lambda: settle(items=ids), lambda: settle(items=list(reversed(ids))), page)
    assert LedgerRow.objects.count() == 20
    assert Account.objects.get().consumed_nano == 20 * CHARGE_NANO
    assert_invariants()


def test_settlers_of_the_same_accounts_in_opposite_order_reach_the_exact_total(
    kernel_db: None,
) -> None:
    make_service()
    names = ["a", "b"]
    for name in names:
        make_account(name)
    rounds = [
        [answered(f"{name}-{number}", account_id=name) for name in order]
        for number, order in enumerate([names, names[::-1]] * 10)
    ]
    at_once(
        lambda: [settle(items=ids) for ids in rounds[::2]],
        lambda: [settle(items=ids) for ids in rounds[1::2]],
    )
    assert {row.consumed_nano for row in Account.objects.all()} == {20 * CHARGE_NANO}
    assert_invariants()


def test_a_page_that_is_rolled_back_settles_whole_or_not_at_all(acme: None) -> None:
    ids = many(50)
    with at_commit("settle", VANISHED), pytest.raises(CommitOutcomeUnknown):
        page()
    assert not LedgerRow.objects.exists()
    assert page().settled == 50
    assert LedgerRow.objects.filter(charge_of__in=ids).count() == 50
    assert_invariants()


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
