"""A kernel's life: initialize, tick, nudge, close within one deadline, again (B1, B7, G1-G3)."""

import asyncio
import contextlib
import threading
from time import monotonic
from typing import Any

import pytest
from django.db import OperationalError, connections

from kernel import schema
from kernel.conf import override
from kernel.errors import Unavailable
from kernel.kernel import Kernel
from kernel.models import PassStatus
from kernel.schema import SchemaState
from tests.support.product import ask, look, look_apart, reread, running_kernel, settled
from tests.support.provider import ProviderProcess
from tests.support.wait import wait_until_async


def passes() -> dict[str, PassStatus]:
    return {row.name: row for row in PassStatus.objects.all()}


@contextlib.contextmanager
def held(kernel: Kernel):
    """A verb that holds a database thread until the block ends."""
    gate, reached = threading.Event(), threading.Event()

    def verb() -> None:
        reached.set()
        assert gate.wait(timeout=20)

    async def work() -> None:
        await kernel.database.in_tx(verb)

    kernel.background.start("settlement", work())
    try:
        yield reached
    finally:
        gate.set()


# --- start ------------------------------------------------------------------------------------


async def test_the_first_tick_starts_every_pass_and_later_ones_wait(kernel_db: None) -> None:
    async with running_kernel() as kernel:
        await kernel.tick()
        await settled(kernel)
        rows = await look(kernel, passes)
        assert set(rows) == {
            "settlement",
            "recovery",
            "purge",
            "approval_expiry",
            "continuations",
            "job_recovery",
            "notification_recovery",
            "operations",
            "receipts",
            "purge_jobs",
            "purge_attempts",
            "purge_dead_letters",
            "purge_exports",
        }
        assert all(row.owner == kernel.owner and not row.running for row in rows.values())
        await kernel.tick()
        assert kernel.background.pending()["settlement"] == 0, "not due yet"


async def test_two_ticks_at_once_start_one_pass(kernel_db: None) -> None:
    async with running_kernel() as kernel:
        await asyncio.gather(kernel.tick(), kernel.tick())
        await settled(kernel)
        rows = await look(kernel, passes)
        assert {row.pages for row in rows.values()} == {1}


async def test_traffic_starts_an_overdue_pass_and_never_waits_for_it(
    kernel_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 0.0
    monkeypatch.setattr("kernel.clock.monotonic", lambda: monotonic() + ahead)
    async with running_kernel() as kernel:
        kernel.nudge()
        assert sum(kernel.background.pending().values()) == 0, "the first tick gets its chance"
        ahead = 61.0
        kernel.nudge()
        assert kernel.background.pending()["settlement"] == 1
        await settled(kernel)
        assert "settlement" in await look(kernel, passes)


async def test_recovery_needs_no_traffic(kernel_db: None) -> None:
    with override(settlement_interval_seconds=1):
        async with running_kernel() as kernel:
            await kernel.tick()
            await settled(kernel)
            first = (await look(kernel, passes))["settlement"].finished_at

            async def ran_again() -> bool:
                await kernel.tick()
                return (await look(kernel, passes))["settlement"].finished_at > first

            await wait_until_async(ran_again, about="a second pass by ticks alone")


async def test_a_kernel_does_not_start_on_a_schema_that_is_not_there(
    kernel_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threading.active_count()
    monkeypatch.setattr(
        schema, "state", lambda: SchemaState(missing=("0064_baseline",), unknown=(), changed=())
    )
    kernel = Kernel()
    with pytest.raises(Unavailable, match="0064_baseline") as refusal:
        await kernel.initialize()
    assert refusal.value.error_code == "schema_not_ready"
    assert "db_init" in refusal.value.way_out
    assert threading.active_count() == before, "nothing is left running"
    assert (await kernel.close()).drained


@pytest.mark.parametrize("name", ["0066_approval_continuations", "0067_delivery_dlq_replay"])
async def test_a_kernel_starts_without_the_migrations_that_gate_their_own_paths(
    kernel_db: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setattr(
        schema, "state", lambda: SchemaState(missing=(name,), unknown=(), changed=())
    )
    async with running_kernel():
        assert name in caplog.text


@pytest.mark.parametrize("field", ["unknown", "changed", "gone"])
async def test_a_kernel_refuses_a_foreign_history_and_a_table_that_is_gone(
    kernel_db: None, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    values: dict[str, Any] = {"missing": (), "unknown": (), "changed": (), field: ("0099_other",)}
    monkeypatch.setattr(schema, "state", lambda: SchemaState(**values))
    with pytest.raises(Unavailable, match="0099_other"):
        await Kernel().initialize()


async def test_a_database_that_is_away_at_start_leaves_nothing_running(
    kernel_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> SchemaState:
        raise OperationalError(2003, "cannot connect")

    before = threading.active_count()
    monkeypatch.setattr(schema, "state", away)
    with pytest.raises(OperationalError):
        await Kernel().initialize()
    assert threading.active_count() == before


async def test_a_kernel_is_initialized_once(kernel_db: None) -> None:
    async with running_kernel() as kernel:
        with pytest.raises(RuntimeError, match="initialized already"):
            await kernel.initialize()


# --- close ------------------------------------------------------------------------------------


async def test_after_close_there_is_no_tick_no_initialize_no_pass_and_no_request(
    shop: ProviderProcess,
) -> None:
    async with running_kernel() as kernel:
        assert (await kernel.close()).drained
        for refused in (kernel.tick, kernel.initialize):
            with pytest.raises(Unavailable) as refusal:
                await refused()
            assert refusal.value.error_code == "closing"
        with pytest.raises(Unavailable):
            kernel.run_pass("settlement")
        with pytest.raises(Unavailable):
            await kernel.gateway.submit(ask("late"))
        kernel.nudge()
        again = await kernel.close()
        assert again.drained
    assert shop.count() == 0


async def test_close_waits_for_started_calls_and_saves_their_results(
    shop: ProviderProcess,
) -> None:
    shop.next("hold", marker="op-1")
    async with running_kernel() as kernel:
        flight = await kernel.gateway.submit(ask("op-1"))
        await asyncio.to_thread(shop.wait_for_call, "op-1")
        closing = asyncio.create_task(kernel.close(20))
        await wait_until_async(lambda: not kernel.background.accepting)
        shop.release("op-1")
        report = await closing
        assert report.drained
        assert (await flight.wait_ended()).saved.result_state == "complete"
        row = await look_apart(lambda: reread(flight.request))
    assert (row.result_state, row.billing_state) == ("complete", "settled"), "children too"


async def test_a_close_out_of_time_keeps_everything_and_can_be_called_again(
    shop: ProviderProcess,
) -> None:
    shop.next("hold", marker="op-1")
    async with running_kernel() as kernel:
        flight = await kernel.gateway.submit(ask("op-1"))
        await asyncio.to_thread(shop.wait_for_call, "op-1")
        report = await kernel.close(0.1)
        assert not report.drained
        assert report.left == {"generation": 1}
        assert kernel.drain_timeouts == 1
        row = await look(kernel, lambda: reread(flight.request))
        assert row.result_state == "dispatched", "the database still answers"
        shop.release("op-1")
        assert (await flight.wait_ended()).saved.applied
        again = await kernel.close(20)
        assert again.drained
        assert again.left == {}


async def test_close_waits_for_database_threads_and_says_so(kernel_db: None) -> None:
    async with running_kernel() as kernel:
        with held(kernel) as reached:
            await wait_until_async(reached.is_set)
            report = await kernel.close(0.1)
        assert not report.drained
        assert report.left == {"settlement": 1, "database": 1}


async def test_all_steps_of_a_close_share_one_deadline(kernel_db: None) -> None:
    async with running_kernel() as kernel:
        with held(kernel) as reached:
            await wait_until_async(reached.is_set)
            report = await kernel.close(0.3)
        assert 0.3 <= report.seconds < 0.6


async def test_the_budget_of_a_close_is_a_setting(kernel_db: None) -> None:
    async with running_kernel() as kernel:
        with override(close_budget_seconds=0.05), held(kernel) as reached:
            await wait_until_async(reached.is_set)
            assert not (await kernel.close()).drained


async def test_work_accepted_before_close_may_register_children(kernel_db: None) -> None:
    async with running_kernel() as kernel:
        go, done = asyncio.Event(), []

        async def child() -> None:
            done.append(1)

        async def monitor() -> None:
            await go.wait()
            kernel.background.start("alert", child())

        kernel.background.start("maintenance", monitor())
        closing = asyncio.create_task(kernel.close(10))
        await wait_until_async(lambda: not kernel.background.accepting)
        go.set()
        assert (await closing).drained
        assert done == [1]


async def test_two_closes_at_once_both_end(kernel_db: None) -> None:
    kernel = Kernel()
    await kernel.initialize()
    reports = await asyncio.gather(kernel.close(5), kernel.close(5))
    assert all(report.drained for report in reports)


async def test_a_kernel_that_never_started_closes_at_once(kernel_db: None) -> None:
    kernel = Kernel()
    assert (await kernel.close()).drained
    with pytest.raises(Unavailable):
        await kernel.initialize()


async def test_a_closed_kernel_leaves_no_thread_task_or_connection(shop: ProviderProcess) -> None:
    threads, tasks = threading.active_count(), len(asyncio.all_tasks())
    of_the_loop = connections["default"].connection
    kernel = Kernel()
    await kernel.initialize()
    await kernel.tick()
    await (await kernel.gateway.submit(ask("op-1"))).wait_ended()
    assert (await kernel.close(20)).drained
    await wait_until_async(lambda: len(asyncio.all_tasks()) <= tasks)
    assert threading.active_count() <= threads
    assert connections["default"].connection is of_the_loop, "the loop's thread never opened one"


async def test_started_evidence_writes_are_drained_and_passes_count_as_work(
    kernel_db: None,
) -> None:
    async with running_kernel() as kernel:
        task = kernel.run_pass("settlement")
        assert kernel.background.pending()["settlement"] == 1
        assert kernel.run_pass("settlement") is not task
        await settled(kernel)
        assert (await look(kernel, passes))["settlement"].pages == 1, "the second joined the first"
        with pytest.raises(ValueError, match="no pass"):
            kernel.run_pass("purgatory")


async def test_progress_is_read_from_memory_and_holds_counters_only(kernel_db: None) -> None:
    async with running_kernel() as kernel:
        for progress in (
            kernel.get_reconciliation_progress(),
            kernel.get_continuation_progress(),
        ):
            shown = {name: getattr(progress, name) for name in progress.__slots__}
            assert set(shown) == {"scanned", "settled", "deferred", "failed", "has_more"}
            assert all(isinstance(value, int) for value in shown.values())
