"""Settlement under bad rows and rivals: nobody waits for another, nothing is charged twice (B3)."""

import asyncio
from unittest import mock

import pytest
from django.db import IntegrityError, OperationalError

from kernel import clock
from kernel.errors import CommitOutcomeUnknown
from kernel.ids import new_id
from kernel.models import Account, LedgerRow, Request
from kernel.runtime import Database, Pass
from kernel.runtime.maintenance import PageReport
from kernel.usage import settlement
from kernel.usage.settlement import settle, settlement_page
from tests.support.commits import AWAY, VANISHED, at_commit
from tests.support.product import (
    assert_invariants,
    ledger_total,
    make_account,
    make_service,
)
from tests.usage.flow import (
    CHARGE_NANO,
    answered,
    at_once,
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
def test_a_corrupt_row_is_set_aside_with_a_reason_and_others_settle(
    acme: None, damage: str
) -> None:
    ids = many(4)
    corrupt(ids[2], **DAMAGES[damage])
    report = page()
    assert (report.scanned, report.settled, report.deferred, report.failed) == (4, 3, 0, 1)
    assert states(ids[2])[1:] == ("pending", "corrupt")
    assert ledger_total() == 3 * CHARGE_NANO == Account.objects.get().consumed_nano


def test_one_corrupt_row_never_keeps_the_49_others_of_its_page_waiting(acme: None) -> None:
    ids = many(50)
    corrupt(ids[20])
    report = page()
    assert (report.scanned, report.settled, report.deferred, report.failed) == (50, 49, 0, 1)
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
    with at_commit("settle", AWAY, times=2) as fault, pytest.raises(OperationalError):
        page()
    assert fault.fired == 2, "once, and once more on a new connection: not row by row"
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
