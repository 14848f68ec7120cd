"""A generation under faults: lost commits, a database that is away, leases (A2, A4, A6, A9)."""

import asyncio
from unittest import mock

import pytest
from django.db import DataError, OperationalError

from kernel.conf import override
from kernel.errors import Unavailable
from kernel.models import LedgerRow, Request
from kernel.usage import results
from kernel.usage.admission import Admission
from kernel.usage.gateway import Flight
from tests.support.commits import AWAY, LANDED, VANISHED, at_commit
from tests.support.product import (
    ask,
    generate,
    look,
    running_kernel,
    settled,
)
from tests.support.provider import ProviderProcess
from tests.support.wait import wait_until_async
from tests.usage.flow import result_of, states_now, the_request

# --- faults at each commit -------------------------------------------------------------------


@pytest.mark.parametrize("what", [LANDED, VANISHED])
@pytest.mark.parametrize("verb", ["admit", "dispatch", "save_results", "settle"])
async def test_a_lost_acknowledgement_at_any_commit_changes_nothing_for_the_caller(
    shop: ProviderProcess, verb: str, what: str
) -> None:
    async with running_kernel() as kernel:
        with at_commit(verb, what) as fault:
            end = await generate(kernel, ask("op-1"))
            await settled(kernel)
        assert fault.fired == 1
        assert end.saved.result_state == "complete"
        await kernel.run_pass("settlement")
        assert await look(kernel, states_now) == ("complete", "settled", "")
        assert await look(kernel, LedgerRow.objects.count) == 1
    assert shop.count("op-1") == 1


@pytest.mark.parametrize("verb", ["admit", "dispatch"])
async def test_a_database_that_is_away_before_the_call_means_no_call(
    shop: ProviderProcess, verb: str
) -> None:
    async with running_kernel() as kernel:
        with (
            at_commit(verb, AWAY, times=2) as fault,
            pytest.raises((Unavailable, OperationalError)),
        ):
            await generate(kernel, ask("op-1"))
        assert fault.fired == 2
        await settled(kernel)
        assert shop.count() == 0
        found = await kernel.gateway.submit(ask("op-1"))
        if verb == "admit":
            assert isinstance(found, Flight), "nothing existed, so the repeat creates it"
            await found.wait_ended()
        else:
            assert isinstance(found, Admission)
            assert found.request.result_state == "admitted", "explicitly dispatched, or cancelled"
    assert shop.count() == (1 if verb == "admit" else 0)


async def test_a_database_that_is_away_while_a_result_is_saved_loses_nothing(
    shop: ProviderProcess,
) -> None:
    async with running_kernel() as kernel:
        with at_commit("save_results", AWAY, times=5) as fault:
            end = await generate(kernel, ask("op-1"))
        assert fault.fired == 5
        assert end.saved.applied
        row = await look(kernel, the_request)
        assert await look(kernel, lambda: result_of(row)) == end.outcome.body
    assert shop.count() == 1


async def test_a_result_that_can_never_be_saved_ends_and_is_seen_as_unknown(
    shop: ProviderProcess,
) -> None:
    async with running_kernel() as kernel:
        with override(result_save_seconds_max=0), at_commit("save_results", AWAY, times=2):
            flight = await kernel.gateway.submit(ask("op-1"))
            with pytest.raises(Unavailable):
                await flight.wait_ended()
        await look(kernel, lambda: Request.objects.update(lease_expires_at="2020-01-01T00:00:00Z"))
        await kernel.run_pass("recovery")
        assert (await look(kernel, states_now))[:2] == ("unknown", "pending")
    assert shop.count() == 1


async def test_a_text_the_database_refuses_does_not_lose_the_bytes(shop: ProviderProcess) -> None:
    shop.next("status_400", marker="op-1")
    real = results._columns

    def picky(item: results.Outcome, now: object) -> dict[str, object]:
        if item.error_text:
            raise DataError(1366, "Incorrect string value")
        return real(item, now)

    async with running_kernel() as kernel:
        with mock.patch.object(results, "_columns", picky):
            end = await generate(kernel, ask("op-1"))
        assert end.saved == results.Saved(True, "failed", "not_charged")
        row = await look(kernel, the_request)
        assert b"test provider says 400" in await look(kernel, lambda: result_of(row))


async def test_a_settlement_that_fails_is_left_to_maintenance(shop: ProviderProcess) -> None:
    async with running_kernel() as kernel:
        with at_commit("settle", AWAY, times=2) as fault:
            await generate(kernel, ask("op-1"))
            await settled(kernel)
        assert fault.fired == 2
        assert (await look(kernel, states_now))[1] == "pending"
        await kernel.run_pass("settlement")
        assert (await look(kernel, states_now))[1] == "settled"


# --- leases ----------------------------------------------------------------------------------


async def test_a_running_call_keeps_its_lease(shop: ProviderProcess) -> None:
    shop.next("hold", marker="op-1")
    with override(dispatch_lease_seconds=5, dispatch_renewal_seconds=0.05):
        async with running_kernel() as kernel:
            flight = await kernel.gateway.submit(ask("op-1"))
            await flight.wait_dispatched()
            first = (await look(kernel, the_request)).lease_expires_at

            async def renewed() -> bool:
                return (await look(kernel, the_request)).lease_expires_at > first

            await wait_until_async(renewed, about="the lease was renewed")
            shop.release("op-1")
            await flight.wait_ended()


async def test_a_lease_shorter_than_its_renewal_is_still_renewed_in_time(
    shop: ProviderProcess,
) -> None:
    shop.next("hold", marker="op-1")
    with override(dispatch_lease_seconds=0.9, dispatch_renewal_seconds=200):
        async with running_kernel() as kernel:
            flight = await kernel.gateway.submit(ask("op-1"))
            await flight.wait_dispatched()
            first = (await look(kernel, the_request)).lease_expires_at

            async def renewed() -> bool:
                return (await look(kernel, the_request)).lease_expires_at > first

            await wait_until_async(renewed, about="the lease was renewed")
            shop.release("op-1")
            await flight.wait_ended()


async def test_an_owner_that_was_taken_for_dead_still_completes_its_request(
    shop: ProviderProcess,
) -> None:
    shop.next("hold", marker="op-1")
    async with running_kernel() as kernel, running_kernel() as other:
        flight = await kernel.gateway.submit(ask("op-1"))
        await asyncio.to_thread(shop.wait_for_call, "op-1")
        await look(other, lambda: Request.objects.update(lease_expires_at="2020-01-01T00:00:00Z"))
        await other.run_pass("recovery")
        assert (await look(other, states_now))[0] == "unknown"
        shop.release("op-1")
        assert (await flight.wait_ended()).saved.applied
        await settled(kernel)
        assert await look(kernel, states_now) == ("complete", "settled", "")
    assert shop.count() == 1
