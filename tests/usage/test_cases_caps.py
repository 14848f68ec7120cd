"""The field cases of caps and reads: what went wrong elsewhere, right here."""

import asyncio
import json
import threading

import pytest

from kernel import usage
from kernel.errors import CapReached
from kernel.models import AuditRow, LedgerRow, Request
from kernel.usage.gateway import Flight
from kernel.usage.settlement import settlement_page
from tests.support.commits import AWAY, at_commit
from tests.support.product import (
    OPERATOR,
    again,
    ask,
    assert_invariants,
    generate,
    look,
    make_account,
    make_service,
    running_kernel,
    settled,
)
from tests.support.provider import ProviderProcess
from tests.usage.flow import (
    CHARGE_NANO,
    admit_all,
    answered,
    at_once,
    body_with,
    dispatched,
    outcome_of,
    result_of,
    row_of,
    saved,
    states,
)


@pytest.fixture
def acme(kernel_db: None) -> None:
    make_account()
    make_service(max_output_tokens=100)


# --- caps -------------------------------------------------------------------------------------


def room(requests: int) -> int:
    hold = len(ask("op-1").body) * 2500 + 100 * 10_000
    return requests * hold + hold // 2


async def test_g28_two_kernels_share_one_cap(shop: ProviderProcess) -> None:
    shop.default("hold")
    async with running_kernel() as first, running_kernel() as second:
        change = {"account_id": "acme", "version": 1, "actor": OPERATOR, "cap_nano": room(2)}
        await first.database.in_tx(usage.change_account, **change)
        found = await asyncio.gather(
            *(
                kernel.gateway.submit(ask(f"op-{number}{name}", max_tokens=100))
                for name, kernel in (("a", first), ("b", second))
                for number in range(4)
            ),
            return_exceptions=True,
        )
        flights = [one for one in found if isinstance(one, Flight)]
        assert 1 <= len(flights) <= 2
        assert all(isinstance(one, Flight | CapReached) for one in found)
        for flight in flights:
            await asyncio.to_thread(shop.wait_for_call, flight.request.operation_id)
        shop.release()
        await asyncio.gather(*(flight.wait_ended() for flight in flights))
    assert shop.count() == len(flights)


def test_g79_of_eight_that_read_the_same_balance_exactly_one_is_admitted(kernel_db: None) -> None:
    make_account(cap_nano=room(1))
    make_service(max_output_tokens=100)
    found = at_once(*(lambda n=number: admit_all(ask(f"op-{n}")) for number in range(8)))
    outcomes = [type(one) for (one,) in found]
    assert sorted(kind.__name__ for kind in outcomes) == ["Admission"] + ["CapReached"] * 7
    assert_invariants()


async def test_g80_holds_enforce_the_cap_while_nothing_settles(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        change = {"account_id": "acme", "version": 1, "actor": OPERATOR, "cap_nano": room(5)}
        await kernel.database.in_tx(usage.change_account, **change)
        with at_commit("settle", AWAY, times=1000):
            found = []
            for number in range(100):
                item = ask(f"op-{number}", max_tokens=100)
                try:
                    found.append(await kernel.gateway.submit(item))
                except CapReached:
                    continue
            await asyncio.gather(*(flight.wait_ended() for flight in found))
            await settled(kernel)
        assert len(found) <= 5
    assert shop.count() == len(found)


# --- reads ------------------------------------------------------------------------------------


def test_g67_requests_of_one_account_in_time_order_have_their_index() -> None:
    indexes = {tuple(index.fields) for index in Request._meta.indexes}
    assert ("account_id", "updated_at", "id") in indexes
    assert ("account_id", "result_state", "updated_at", "id") in indexes


def test_g70_a_total_read_during_settlement_never_jumps(kernel_db: None) -> None:
    make_account(cap_nano=10**12)
    make_service(max_output_tokens=100)
    ids = [answered(f"op-{number:02}") for number in range(20)]
    hold = row_of(ids[0]).hold_nano
    done = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not done.is_set():
            found = usage.account_summary(account_id="acme")
            count, rest = divmod(found.consumed_nano, CHARGE_NANO)
            if rest or found.pending_nano_max != (20 - count) * hold != found.held_nano:
                wrong.append(found)

    def settle() -> None:
        try:
            for each in ids:
                usage.settle(items=[each])
        finally:
            done.set()

    at_once(read, settle)
    assert wrong == []


def test_g71_no_row_of_a_list_carries_a_body_or_an_echo_of_it(acme: None) -> None:
    fence = dispatched()
    echo = json.dumps({"error": {"message": "x" * 300_000}}).encode()
    saved(outcome_of(fence, status=400, body=echo))
    row = Request.objects.values().get()
    assert max(len(str(value)) for value in row.values()) < 3000
    assert result_of(row_of(fence.request_id)) == echo


@pytest.mark.parametrize("literal", ["null", '"10"', "true", "1.5", "NaN", "1e308", "-5"])
def test_g82_a_count_that_is_no_count_is_pending_and_its_text_is_kept(
    acme: None, literal: str
) -> None:
    body = b'{"choices":[],"usage":{"prompt_tokens":%s,"completion_tokens":4}}'
    request_id = answered(body=body % literal.encode())
    settlement_page(cursor=None, limit=50)
    assert states(request_id) == ("complete", "pending", "invalid_usage")
    assert literal.strip('"') in row_of(request_id).usage_text
    assert LedgerRow.objects.count() == 0


@pytest.mark.parametrize("total", [None, 0, "omit"])
def test_g83_a_missing_total_changes_nothing(acme: None, total: object) -> None:
    told = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": total}
    if total == "omit":
        del told["total_tokens"]
    request_id = answered(body=body_with(told))
    usage.settle(items=[request_id])
    assert row_of(request_id).billed_nano == 10 * 2500 + 5 * 10_000


async def test_g85_a_replay_costs_nothing_and_counts_no_token_again(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        item = ask("op-1")
        await generate(kernel, item)
        await settled(kernel)
        before = await look(kernel, lambda: list(LedgerRow.objects.values()))
        for _ in range(3):
            await kernel.gateway.submit(again(item))
        await kernel.run_pass("settlement")
        assert await look(kernel, lambda: list(LedgerRow.objects.values())) == before
        assert await look(kernel, AuditRow.objects.count) == 2, "account and service, no replay"
