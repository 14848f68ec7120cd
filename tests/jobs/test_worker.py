"""The worker: several of them, one owner per job; its leases; what it does when it cannot (D1)."""

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

from kernel import clock, schema
from kernel.conf import override
from kernel.errors import Unavailable
from kernel.jobs.worker import retry_seconds
from kernel.models import Job
from kernel.state import database as store
from tests.support.agent import (
    CALLER,
    STORE,
    call,
    ended,
    make_route,
    make_tool,
    reached,
    says,
    submit,
    submitted,
    working_kernel,
)
from tests.support.product import look, look_apart, running_kernel
from tests.support.provider import ProviderProcess
from tests.support.tool_server import ToolServer
from tests.support.wait import wait_until_async

COUNT = 12


async def test_two_workers_share_a_queue_and_every_job_runs_once(shop: ProviderProcess) -> None:
    await make_route()
    jobs = await look_apart(lambda: [submit(f"req-{n}", prompt=f"job {n}") for n in range(COUNT)])
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(working_kernel(owner="krn-a"))
        await stack.enter_async_context(working_kernel(owner="krn-b"))
        rows = [await ended(first, job.id) for job in jobs]
    assert {row.state for row in rows} == {"done"}
    assert {(row.attempts, row.fence_token) for row in rows} == {(1, 1)}
    prompts = [one.json["messages"][-1]["content"] for one in shop.calls()]
    assert sorted(prompts) == sorted(f"job {n}" for n in range(COUNT))


async def test_a_worker_runs_no_more_jobs_at_once_than_it_may(shop: ProviderProcess) -> None:
    await make_route()
    for _ in range(3):
        shop.next("hold", text="Done.")
    await look_apart(lambda: [submit(f"req-{n}") for n in range(3)])
    with override(job_count_max=2):
        async with working_kernel() as kernel:
            await reached(shop, 2)
            states = await look(kernel, lambda: list(Job.objects.values_list("state", flat=True)))
            assert (sorted(states), kernel.worker.running) == (["queued", "running", "running"], 2)
            shop.release()
            await reached(shop, 3)
            shop.release()
            await wait_until_async(lambda: kernel.worker.running == 0, about="all have ended")


async def test_the_leases_of_all_running_jobs_are_renewed_in_one_transaction(
    shop: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_route()
    for _ in range(3):
        shop.next("hold", text="Done.")
    jobs = await look_apart(lambda: [submit(f"req-{n}") for n in range(3)])
    beats: list[set[str]] = []
    real = store.heartbeat

    def counted(*, fences: Any) -> set[str]:
        beats.append({fence.job_id for fence in fences})
        return real(fences=fences)

    monkeypatch.setattr(STORE.__class__, "heartbeat", staticmethod(counted))
    with override(job_heartbeat_seconds=0.1):
        async with working_kernel() as kernel:
            await reached(shop, 3)
            leases = await look(kernel, lambda: {row.id: row for row in Job.objects.all()})
            everything = {job.id for job in jobs}
            await wait_until_async(lambda: everything in beats, about="one beat for all")

            async def renewed() -> bool:
                rows = await look(kernel, lambda: list(Job.objects.all()))
                return all(row.lease_expires_at > leases[row.id].lease_expires_at for row in rows)

            await wait_until_async(renewed, about="every lease moved")
            shop.release()
            for job in jobs:
                assert (await ended(kernel, job.id)).state == "done"


async def test_leases_are_renewed_until_the_last_job_of_a_closing_kernel_has_ended(
    shop: ProviderProcess,
) -> None:
    await make_route()
    shop.next("hold", text="Done.")
    with override(job_heartbeat_seconds=0.05):
        async with working_kernel() as kernel:
            job = await submitted(kernel)
            await reached(shop)
            late = await kernel.close(0.2)
            assert late.left["job"] == 1

            def lease() -> Any:
                return Job.objects.get(id=job.id).lease_expires_at

            closing = asyncio.create_task(kernel.close(30))
            first = await look_apart(lease)

            async def renewed() -> bool:
                return bool((await look_apart(lease)) > first)

            await wait_until_async(renewed, about="a slow drain keeps its job")
            shop.release()
            assert (await closing).drained


async def test_a_lease_found_lost_by_a_heartbeat_stops_the_run_before_its_next_effect(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund")
    says(shop, calls=[call("refund", {"amount": 1})], latency_ms=300)
    with override(job_heartbeat_seconds=0.05):
        async with working_kernel() as kernel:
            job = await submitted(kernel)
            await reached(shop)
            (run,) = kernel.worker._running.values()
            await look(kernel, lambda: Job.objects.update(owner="wrk_other", fence_token=9))
            await wait_until_async(lambda: run.lost, about="the heartbeat saw it")
            await wait_until_async(lambda: kernel.worker.running == 0, about="the run ended")
            row = await look(kernel, lambda: STORE.get(job_id=job.id))
    assert (row.state, row.owner, row.fence_token) == ("running", "wrk_other", 9)
    assert tool_server.sent() == []


async def test_a_database_that_is_away_only_delays_the_claims(
    shop: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_route()
    says(shop, "Done.")
    real, faults = store.claim, []

    def away_at_first(**values: Any) -> Any:
        if len(faults) < 2:
            faults.append(1)
            raise OperationalError(2006, "Server has gone away")
        return real(**values)

    monkeypatch.setattr(STORE.__class__, "claim", staticmethod(away_at_first))
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        assert (await ended(kernel, job.id)).state == "done"
    assert len(faults) == 2


async def test_without_its_migration_the_worker_waits_and_the_kernel_closes(
    kernel_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def missing(name: str) -> None:
        asked.append(name)
        raise Unavailable(f"The database lacks the migration {name}.", code="migration_missing")

    monkeypatch.setattr(schema, "require", missing)
    async with working_kernel() as kernel:
        await wait_until_async(lambda: schema.AGENT_JOBS in asked, about="it asked")
        await kernel.tick()
        assert kernel.worker.is_started
        assert kernel.background.failures["maintenance"] == 0


async def test_the_kernels_own_verb_wakes_the_worker(shop: ProviderProcess) -> None:
    await make_route()
    says(shop, "Done.")
    with override(job_poll_seconds=60):
        async with running_kernel(worker=True) as kernel:
            await wait_until_async(lambda: kernel.database.pending == 0, about="it has looked")
            job, created = await kernel.submit_job(
                account_id="acme",
                request_id="req-1",
                route_id="refunds",
                input={"prompt": "hi"},
                actor=CALLER,
            )
            row = await ended(kernel, job.id)
    assert created
    assert json.loads(row.result_text) == {"content": "Done.", "steps": 1}


def test_a_run_that_cannot_go_on_rests_longer_each_time_and_never_for_ever() -> None:
    with override(job_retry_seconds=5, job_retry_max_seconds=600):
        waits = [retry_seconds(attempts=number) for number in range(1, 101)]
    assert waits[:4] == [5, 30, 180, 600] and set(waits[3:]) == {600}
    assert clock.now() + timedelta(seconds=waits[-1])
