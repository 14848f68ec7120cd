"""What breaks midway: lost leases, closing kernels, unsure outcomes (D1-D3, G3; cases 31, 64)."""

import asyncio
import json
from datetime import timedelta

import pytest
from django.db.models import F

from kernel import clock, usage
from kernel.jobs import change_route, steps
from kernel.jobs.resolution import resolve_call
from kernel.models import Job, Request, ToolCall
from kernel.states import CallState
from kernel.usage.dispatch import dispatch, order
from kernel.usage.resolution import Evidence
from tests.support.agent import (
    ANN,
    STORE,
    call,
    calls_of,
    ended,
    job_is,
    make_route,
    make_tool,
    reached,
    says,
    submit,
    submitted,
    ticks,
    working_kernel,
)
from tests.support.product import OPERATOR, look, look_apart, running_kernel, settled
from tests.support.provider import ProviderProcess
from tests.support.tool_server import ToolServer
from tests.support.wait import wait_until_async

SIX = {"amount": 6}


def told(provider: ProviderProcess) -> dict:
    """What the model was told of its last call."""
    return json.loads(provider.calls()[-1].json["messages"][-1]["content"])


def saved_step(job, text: str) -> usage.dispatch:
    """The first step of a job, admitted by a run that died before its dispatch."""
    body = json.dumps({"model": "gpt", "messages": [{"role": "user", "content": text}]}).encode()
    item = steps.submission_of_step(account_id="acme", job_id=job.id, step=1, body=body)
    (admission,) = usage.admit(items=[item])
    return admission.request


def stolen(job_id: str) -> None:
    """Another claim holds the job now, and its lease has ended as well."""
    past = clock.db_now() - timedelta(seconds=1)
    Job.objects.filter(id=job_id, state="running").update(
        owner="wrk_other", fence_token=F("fence_token") + 1, lease_expires_at=past
    )


# --- model steps ------------------------------------------------------------------------------


async def test_a_step_that_was_admitted_and_not_sent_is_sent_by_the_next_claim_as_it_was_saved(
    shop: ProviderProcess,
) -> None:
    route = await make_route()
    job = await look_apart(submit)
    row = await look_apart(lambda: saved_step(job, "saved words"))
    await look_apart(
        lambda: change_route(
            route_id="refunds", actor=OPERATOR, seen_version=route.version, instructions="Other."
        )
    )
    says(shop, "Done.")
    async with working_kernel() as kernel:
        ended_job = await ended(kernel, job.id)
        (request,) = await look(kernel, lambda: list(Request.objects.all()))
    assert ended_job.state == "done"
    assert request.id == row.id
    (sent,) = shop.calls()
    assert [m["content"] for m in sent.json["messages"]] == ["saved words"]


async def test_a_step_of_a_dead_owner_is_waited_for_then_unknown_and_never_sent_again(
    shop: ProviderProcess,
) -> None:
    await make_route()
    job = await look_apart(submit)
    row = await look_apart(lambda: saved_step(job, "hi"))
    await look_apart(lambda: dispatch(items=[order(request_id=row.id, owner="krn-dead")]))
    async with working_kernel() as kernel:

        async def came_back() -> bool:
            found = await look(kernel, lambda: Job.objects.get(id=job.id))
            return found.fence_token >= 2

        await wait_until_async(came_back, about="the job was released and claimed again")
        past = clock.now() - timedelta(seconds=1)
        await look(kernel, lambda: Request.objects.update(lease_expires_at=past))
        waiting = await job_is(kernel, job.id, "waiting", reason="outcome_unknown")
        assert (waiting.attempts, shop.count()) == (0, 0)
        await ticks(kernel, "job_recovery")
        assert (await look(kernel, lambda: STORE.get(job_id=job.id))).state == "waiting"
        unknown = await look(kernel, Request.objects.get)
        await look(
            kernel,
            lambda: usage.resolve_unknown(
                request_id=unknown.id,
                evidence=Evidence(executed=False),
                note="the provider knows nothing of it",
                actor=OPERATOR,
                seen_updated_at=unknown.updated_at,
            ),
        )
        row = await ended(kernel, job.id, maintained=True)
    assert (row.state, row.error_code) == ("failed", "model_failed")
    assert "resolved_not_executed" in row.error_text
    assert shop.count() == 0


async def test_a_lost_model_answer_makes_the_job_wait_for_an_operator(
    shop: ProviderProcess,
) -> None:
    await make_route()
    shop.next("close")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        await job_is(kernel, job.id, "waiting", reason="outcome_unknown")
    assert shop.count() == 1


async def test_a_changed_service_ends_the_job_and_sends_nothing(shop: ProviderProcess) -> None:
    await make_route()
    job = await look_apart(submit)
    await look_apart(lambda: saved_step(job, "hi"))
    await look_apart(
        lambda: usage.change_service(
            service_id="gpt", version=1, actor=OPERATOR, model="other-model", reason="test"
        )
    )
    async with working_kernel() as kernel:
        row = await ended(kernel, job.id)
        request = await look(kernel, Request.objects.get)
    assert (row.state, row.error_code) == ("failed", "service_changed")
    assert (request.result_state, request.billing_state) == ("cancelled", "not_charged")
    assert shop.count() == 0


# --- leases -----------------------------------------------------------------------------------


async def test_a_run_that_lost_its_lease_stops_before_its_next_effect(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund")
    shop.next("hold", text="Done.")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        await reached(shop)
        await look(kernel, lambda: stolen(job.id))
        shop.release()
        await settled(kernel)
        row = await look(kernel, lambda: STORE.get(job_id=job.id))
        assert (row.state, row.owner, row.result_text) == ("running", "wrk_other", "")


async def test_the_late_answer_of_a_lost_claim_writes_nothing_and_the_call_is_uncertain(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    """Case 31: sent once, answered, the answer not saved: an operator says what happened."""
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund")
    says(shop, calls=[call("refund", SIX)])
    says(shop, "Settled.")
    tool_server.next("hold")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        await reached(tool_server)
        (made,) = await calls_of(kernel, job.id)
        assert made.state == CallState.DISPATCHING, "committed before any byte left (case 32)"
        await look(kernel, lambda: stolen(job.id))
        tool_server.release()
        await settled(kernel)
        (made,) = await calls_of(kernel, job.id)
        assert (made.state, made.http_status) == (CallState.DISPATCHING, None)
        await job_is(kernel, job.id, "waiting", reason="tool_uncertain", maintained=True)
        await ticks(kernel, "job_recovery")
        assert (await look(kernel, lambda: STORE.get(job_id=job.id))).state == "waiting"
        await look(
            kernel,
            lambda: resolve_call(
                call_id=made.id, outcome="done", note="the bank shows it", actor=ANN, store=STORE
            ),
        )
        row = await ended(kernel, job.id)
        (made,) = await calls_of(kernel, job.id)
    assert (row.state, made.state, made.note) == ("done", CallState.DONE, "the bank shows it")
    assert len(tool_server.sent()) == 1
    assert told(shop) == {"outcome": "done", "found_by": "an operator", "note": "the bank shows it"}


async def test_a_read_left_without_an_answer_is_made_again_under_the_same_key(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("look", url=f"{tool_server.url}/look", side_effect=False)
    await make_route("look")
    says(shop, calls=[call("look", SIX)])
    says(shop, "Done.")
    tool_server.next("hold")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        await reached(tool_server)
        await look(kernel, lambda: stolen(job.id))
        tool_server.release()
        await settled(kernel)
        row = await ended(kernel, job.id, maintained=True)
    assert row.state == "done"
    assert len(tool_server.sent()) == 2
    assert len(set(tool_server.keys())) == 1


async def test_a_job_that_loses_its_workers_is_parked_and_the_queue_moves_on(
    shop: ProviderProcess,
) -> None:
    """Case 64, on a worker that runs one job at a time."""
    await make_route()
    job = await look_apart(lambda: submit("req-bad"))

    def lose_it() -> None:
        for _ in range(3):
            (claimed,) = STORE.claim(owner="wrk_dead", target="agent", limit=1)
            past = clock.db_now() - timedelta(seconds=1)
            Job.objects.filter(id=claimed.id, state="running").update(lease_expires_at=past)
            STORE.reclaim(limit=10)

    await look_apart(lose_it)
    says(shop, "Done.")
    async with working_kernel() as kernel:
        other = await submitted(kernel, "req-good")
        assert (await ended(kernel, other.id)).state == "done"
        parked = await look(kernel, lambda: STORE.get(job_id=job.id))
    assert (parked.state, parked.error_code) == ("parked", "worker_lost")


async def test_a_defect_fails_its_job_and_the_queue_moves_on(
    shop: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_route()
    from kernel.jobs import agent

    real, seen = agent.read_answer, []

    def broken_once(body: bytes):
        seen.append(body)
        if len(seen) == 1:
            raise ZeroDivisionError("a defect")
        return real(body)

    monkeypatch.setattr(agent, "read_answer", broken_once)
    says(shop, "One.")
    says(shop, "Two.")
    async with working_kernel() as kernel:
        first = await submitted(kernel, "req-1")
        row = await ended(kernel, first.id)
        assert (row.state, row.error_code) == ("failed", "internal")
        second = await submitted(kernel, "req-2")
        assert (await ended(kernel, second.id)).state == "done"
        assert kernel.background.failures["job"] == 1


# --- closing ----------------------------------------------------------------------------------


async def test_a_closing_kernel_saves_the_call_on_its_way_and_releases_the_job(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund")
    says(shop, calls=[call("refund", SIX)])
    says(shop, "Done.")
    tool_server.next("hold")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        await reached(tool_server)
        late = await kernel.close(0.2)
        assert (late.drained, late.left) == (False, {"job": 1})
        closing = asyncio.create_task(kernel.close(10))
        tool_server.release()
        assert (await closing).drained
    row = await look_apart(lambda: Job.objects.get(id=job.id))
    assert (row.state, row.attempts, row.owner) == ("queued", 0, ""), "interrupted is not failed"
    assert (await look_apart(ToolCall.objects.get)).state == CallState.DONE
    async with working_kernel() as kernel:
        assert (await ended(kernel, job.id)).state == "done"
    assert (len(tool_server.sent()), shop.count()) == (1, 2)


async def test_a_kernel_without_a_worker_claims_nothing(shop: ProviderProcess) -> None:
    await make_route()
    async with running_kernel() as kernel:
        job = await submitted(kernel)
        await kernel.tick()
        await settled(kernel)
        assert (await look(kernel, lambda: STORE.get(job_id=job.id))).state == "queued"
