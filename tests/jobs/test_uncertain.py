"""Calls whose effect is not known, and calls that provably were not sent (C12, D3, E2)."""

import json

import pytest

from kernel.errors import Conflict, InvalidInput, LostRace
from kernel.jobs.resolution import resolve_call
from kernel.models import Approval, Tool, ToolCall
from kernel.states import CallState
from tests.support.agent import (
    ANN,
    ASKS,
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
from tests.support.product import look
from tests.support.provider import ProviderProcess
from tests.support.tool_server import ToolServer
from tests.support.wait import wait_until_async

SIX = {"amount": 6}


def told(provider: ProviderProcess) -> dict:
    """What the model was told of its last call."""
    return json.loads(provider.calls()[-1].json["messages"][-1]["content"])


@pytest.mark.parametrize(
    "behaviour", ["status_408", "status_409", "status_500", "status_503", "close", "rst"]
)
async def test_an_answer_that_says_nothing_leaves_the_call_uncertain(
    shop: ProviderProcess, tool_server: ToolServer, behaviour: str
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund")
    says(shop, calls=[call("refund", SIX)])
    says(shop, "I see.")
    tool_server.next(behaviour)
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        await job_is(kernel, job.id, "waiting", reason="tool_uncertain")
        (made,) = await calls_of(kernel, job.id)
        assert made.state == CallState.DISPATCHING
        assert made.error_code and made.note, "what is known of it, for the operator"
        with pytest.raises(InvalidInput):
            await look(
                kernel,
                lambda: resolve_call(
                    call_id=made.id, outcome="not_done", note=" ", actor=ANN, store=STORE
                ),
            )
        await look(
            kernel,
            lambda: resolve_call(
                call_id=made.id, outcome="not_done", note="no trace", actor=ANN, store=STORE
            ),
        )
        row = await ended(kernel, job.id)
        with pytest.raises(LostRace):
            await look(
                kernel,
                lambda: resolve_call(
                    call_id=made.id, outcome="done", note="oh yes", actor=ANN, store=STORE
                ),
            )
    assert row.state == "done"
    assert len(tool_server.sent()) == 1
    assert told(shop) == {"error": "resolved_not_done", "message": "no trace"}


async def test_a_call_on_its_way_is_nobodys_to_resolve(
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
        (made,) = await calls_of(kernel, job.id)
        with pytest.raises(Conflict) as refusal:
            await look(
                kernel,
                lambda: resolve_call(
                    call_id=made.id, outcome="done", note="surely", actor=ANN, store=STORE
                ),
            )
        assert refusal.value.error_code == "in_flight"
        tool_server.release()
        assert (await ended(kernel, job.id)).state == "done"


async def test_what_provably_was_not_sent_keeps_its_grant_until_the_tries_are_used_up(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url="http://127.0.0.1:9/refunds", policy=ASKS)
    await make_route("refund")
    says(shop, calls=[call("refund", SIX)])
    says(shop, "It is down.")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        (question,) = await asks(kernel, job.id)
        await decided(kernel, question)

        def tried_once() -> bool:
            row = ToolCall.objects.get()
            state = Approval.objects.get().state
            return (row.tries, row.state, state) == (1, CallState.PROPOSED, "approved")

        await wait_until_async(lambda: look(kernel, tried_once), look_every=0.001)
        row = await ended(kernel, job.id)
        (made,) = await calls_of(kernel, job.id)
        approval = await look(kernel, Approval.objects.get)
        tool = await look(kernel, Tool.objects.get)
    assert row.state == "done"
    assert (made.tries, made.state, made.error_code) == (5, CallState.FAILED, "tool_unreachable")
    assert (approval.state, tool.version) == ("cancelled", 1)
    assert told(shop)["error"] == "tool_unreachable"
