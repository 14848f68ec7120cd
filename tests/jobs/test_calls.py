"""May a call be made now: pauses, drift, late grants, rates (C1, C5, C11, D4; cases 40, 53)."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kernel import clock
from kernel.approvals import Decision
from kernel.audit import length
from kernel.conf import override
from kernel.errors import Conflict, Forbidden
from kernel.jobs import cancel_job, change_route, change_tool
from kernel.kernel import Kernel
from kernel.models import Approval, AuditRow, Job, Tool, ToolCall
from kernel.state import JobRecord
from kernel.state.pauses import pause, unpause
from kernel.states import CallState
from tests.support.agent import (
    ASKS,
    CALLER,
    FORBIDS,
    STORE,
    asks,
    call,
    calls_of,
    decided,
    ended,
    job_is,
    make_route,
    make_tool,
    reached,
    says,
    submitted,
    working_kernel,
)
from tests.support.product import OPERATOR, look
from tests.support.provider import ProviderProcess
from tests.support.tool_server import ToolServer
from tests.support.wait import wait_until_async

SIX = {"amount": 6}


async def world(shop: ProviderProcess, tool_server: ToolServer, **fields: Any) -> None:
    """A tool that asks, a route, a model that wants one refund and then ends."""
    await make_tool("refund", url=f"{tool_server.url}/refunds", policy=ASKS)
    await make_route("refund", **fields)
    says(shop, calls=[call("refund", SIX)])
    says(shop, "Done.")


async def approved_while_paused(kernel: Kernel) -> tuple[JobRecord, Approval]:
    """A job whose question is approved while everything is paused: queued, not claimed."""
    job = await submitted(kernel)
    (question,) = await asks(kernel, job.id)
    await look(kernel, lambda: pause(scope="global", reason="audit", actor=OPERATOR))
    await decided(kernel, question)
    return job, question


async def go_on(kernel: Kernel) -> None:
    await look(kernel, lambda: unpause(scope="global", actor=OPERATOR))
    kernel.worker.wake()


def change(**fields: Any) -> Callable[[], Tool]:
    def do() -> Tool:
        row = Tool.objects.get(id="refund")
        return change_tool(
            tool_id="refund", actor=OPERATOR, seen_version=row.version, reason="test", **fields
        )

    return do


def states() -> list[str]:
    return list(Approval.objects.order_by("id").values_list("state", flat=True))


# --- pauses and stops -------------------------------------------------------------------------


async def test_a_pause_stops_an_approved_call_and_its_grant_stays(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await world(shop, tool_server)
    async with working_kernel() as kernel:
        job, _ = await approved_while_paused(kernel)
        row = await job_is(kernel, job.id, "queued")
        assert (row.attempts, await look(kernel, states)) == (0, ["approved"])
        await go_on(kernel)
        assert (await ended(kernel, job.id)).state == "done"
        assert await look(kernel, states) == ["consumed"]
    assert len(tool_server.sent()) == 1


async def test_a_route_paused_during_a_step_sends_no_call_until_it_goes_on(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund")
    says(shop, calls=[call("refund", SIX)], latency_ms=300)
    says(shop, "Done.")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        await reached(shop)
        await look(kernel, lambda: pause(scope="route:refunds", reason="stop", actor=OPERATOR))
        row = await job_is(kernel, job.id, "queued")
        (made,) = await calls_of(kernel, job.id)
        assert (made.state, row.attempts) == (CallState.PROPOSED, 0)
        assert tool_server.sent() == []
        await look(kernel, lambda: unpause(scope="route:refunds", actor=OPERATOR))
        assert (await ended(kernel, job.id)).state == "done"
    assert len(tool_server.sent()) == 1


async def test_a_route_out_of_use_ends_its_approved_job_and_sends_nothing(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await world(shop, tool_server)
    async with working_kernel() as kernel:
        job, _ = await approved_while_paused(kernel)
        await look(
            kernel,
            lambda: change_route(route_id="refunds", actor=OPERATOR, seen_version=1, active=False),
        )
        await go_on(kernel)
        row = await ended(kernel, job.id)
        assert await look(kernel, states) == ["cancelled"]
    assert (row.state, row.error_code) == ("failed", "route_inactive")
    assert tool_server.sent() == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"policy": FORBIDS}, "forbidden"), ({"active": False}, "tool_inactive")],
)
async def test_an_approval_never_overrides_a_tool_that_was_stopped_since(
    shop: ProviderProcess, tool_server: ToolServer, fields: dict[str, Any], code: str
) -> None:
    await world(shop, tool_server)
    async with working_kernel() as kernel:
        job, _ = await approved_while_paused(kernel)
        await look(kernel, change(**fields))
        await go_on(kernel)
        row = await ended(kernel, job.id)
        (made,) = await calls_of(kernel, job.id)
        assert await look(kernel, states) == ["cancelled"]
    assert (row.state, made.state, made.error_code) == ("done", CallState.FAILED, code)
    assert tool_server.sent() == []


# --- drift ------------------------------------------------------------------------------------


async def test_a_tool_changed_after_the_approval_asks_anew_and_the_old_grant_is_void(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await world(shop, tool_server)
    async with working_kernel() as kernel:
        job, old = await approved_while_paused(kernel)
        await look(kernel, change(url=f"{tool_server.url}/v2/refunds"))
        await go_on(kernel)
        (new,) = await asks(kernel, job.id)
        assert (new.supersedes_id, new.tool_version) == (old.id, 2)
        assert new.arguments_sha256 == old.arguments_sha256
        assert await look(kernel, states) == ["cancelled", "open"]
        assert tool_server.sent() == []
        await decided(kernel, new)
        assert (await ended(kernel, job.id)).state == "done"
    assert [one.path for one in tool_server.sent()] == ["/v2/refunds"]


async def test_a_tool_that_keeps_changing_ends_the_job_after_the_allowed_questions(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await world(shop, tool_server)
    with override(approval_asks_count_max=2):
        async with working_kernel() as kernel:
            job, _ = await approved_while_paused(kernel)
            await look(kernel, change(effect="Refund {amount} now."))
            await go_on(kernel)
            (second,) = await asks(kernel, job.id)
            await look(kernel, lambda: pause(scope="global", reason="again", actor=OPERATOR))
            await decided(kernel, second)
            await look(kernel, change(effect="Refund {amount} at once."))
            await go_on(kernel)
            row = await ended(kernel, job.id)
            assert await look(kernel, states) == ["cancelled", "cancelled"]
    assert (row.state, row.error_code) == ("failed", "too_many_questions")
    assert tool_server.sent() == []


async def test_a_model_that_asks_in_circles_ends_without_a_storm_of_questions(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds", policy=ASKS)
    await make_route("refund")
    for amount in range(5):
        says(shop, calls=[call("refund", {"amount": amount})])
    with override(job_approvals_count_max=3):
        async with working_kernel() as kernel:
            job = await submitted(kernel)
            for _ in range(3):
                (question,) = await asks(kernel, job.id)
                await decided(kernel, question)
            row = await ended(kernel, job.id)
            assert await look(kernel, states) == ["consumed"] * 3
    assert (row.state, row.error_code) == ("failed", "too_many_questions")
    assert (len(tool_server.sent()), shop.count()) == (3, 4)


# --- late, cancelled --------------------------------------------------------------------------


async def test_a_grant_that_expired_before_its_call_sends_nothing_and_says_so(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await world(shop, tool_server)
    async with working_kernel() as kernel:
        job, _ = await approved_while_paused(kernel)
        late = clock.now() - timedelta(seconds=1)
        await look(kernel, lambda: Approval.objects.update(expires_at=late))
        await go_on(kernel)
        row = await ended(kernel, job.id)
        approval = await look(kernel, Approval.objects.get)
    assert (row.state, row.error_code) == ("refused", "approval_expired")
    assert (approval.state, approval.decision) == ("expired", "approved")
    assert tool_server.sent() == []


async def test_a_cancelled_job_takes_its_question_with_it_and_a_late_approval_is_refused(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await world(shop, tool_server)
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        (question,) = await asks(kernel, job.id)
        await look(
            kernel,
            lambda: cancel_job(store=STORE, job_id=job.id, actor=OPERATOR, reason="not needed"),
        )
        with pytest.raises(Conflict) as refusal:
            await decided(kernel, question)
        assert refusal.value.error_code == "cancelled"
        row = await look(kernel, lambda: Job.objects.get(id=job.id))
        (made,) = await calls_of(kernel, job.id)
        assert await look(kernel, states) == ["cancelled"]
    assert (row.state, made.state) == ("cancelled", CallState.FAILED)
    assert tool_server.sent() == []


async def test_a_cancelled_job_stops_its_run_at_the_next_step(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund")
    says(shop, calls=[call("refund", SIX)], latency_ms=300)
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        await reached(shop)
        await look(
            kernel, lambda: cancel_job(store=STORE, job_id=job.id, actor=OPERATOR, reason="stop")
        )
        await wait_until_async(lambda: kernel.worker.running == 0, about="the run ended")
        row = await look(kernel, lambda: Job.objects.get(id=job.id))
    assert row.state == "cancelled"
    assert tool_server.sent() == []


# --- rates, records ---------------------------------------------------------------------------


async def test_a_rate_limit_keeps_the_job_queued_and_uses_nothing(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds", calls_per_minute_max=1)
    await make_route("refund")
    says(shop, calls=[call("refund", {"amount": n}) for n in (1, 2)])
    says(shop, "Done.")
    async with working_kernel() as kernel:
        job = await submitted(kernel)

        async def held_back() -> bool:
            row = await look(kernel, lambda: STORE.get(job_id=job.id))
            return row.fence_token >= 3

        await wait_until_async(held_back, about="the job was released and claimed again")
        assert len(tool_server.sent()) == 1
        ago = clock.now() - timedelta(seconds=61)
        await look(kernel, lambda: ToolCall.objects.filter(state="done").update(updated_at=ago))
        row = await ended(kernel, job.id)
    assert (row.state, row.attempts) == ("done", 1)
    assert [json.loads(one.body)["amount"] for one in tool_server.sent()] == [1, 2]


async def test_what_a_call_did_stands_in_the_audit_trail_within_its_own_budget(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund")
    says(shop, calls=[call("refund", SIX)])
    says(shop, "Done.")
    tool_server.next("raw", body="é" * 1000)
    with override(model_view_bytes_max=501, audit_view_bytes_max=301):
        async with working_kernel() as kernel:
            job = await submitted(kernel)
            await ended(kernel, job.id)
            (made,) = await calls_of(kernel, job.id)
            row = await look(kernel, lambda: AuditRow.objects.get(action="call.done"))
            assert await look(kernel, lambda: length(kind="call", object_id=made.id)) == 1
    after = json.loads(row.after_text)
    assert (after["body"], after["body_bytes"], after["body_was_cut"]) == ("é" * 150, 2000, True)
    told = json.loads(shop.calls()[-1].json["messages"][-1]["content"])
    assert told["body"] == "é" * 250
    assert (told["body_was_cut"], told["shown_bytes"], told["body_bytes"]) == (True, 500, 2000)
    assert (made.response_bytes, row.actor_kind) == (2000, "system")


async def test_nobody_decides_about_their_own_job(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await world(shop, tool_server)
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        (question,) = await asks(kernel, job.id)
        assert question.requested_by == "token:tok-shop"
        order = Decision(question.id, "approved", "dec-1", "", CALLER)
        with pytest.raises(Forbidden) as refusal:
            await kernel.decide(order)
        assert refusal.value.error_code == "four_eyes"
