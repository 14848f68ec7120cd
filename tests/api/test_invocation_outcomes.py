"""What a sent invocation came to: uncertain stays so, nothing sent keeps the grant (C9, D3, E2)."""

import asyncio
from datetime import timedelta

import pytest

from kernel import clock
from kernel.errors import Conflict
from kernel.jobs import invocations
from kernel.jobs.calls import ANSWER_SECONDS
from kernel.jobs.resolution import resolve_call
from kernel.models import Approval, Tool, ToolCall
from kernel.transactions import transaction
from tests.api.agents import STORE, approve, create, receipt, resume
from tests.api.conftest import Api, error_of
from tests.support.product import OPERATOR
from tests.support.slept import sleeps_after
from tests.support.tool_server import ToolServer


@pytest.mark.parametrize("behaviour", ["close", "rst", "garbage", "truncate_body", "status_503"])
async def test_a_call_without_a_whole_answer_is_uncertain_and_never_sent_again(
    asks: Api, tool_server: ToolServer, behaviour: str
) -> None:
    await create(asks)
    await asks.look(approve)
    tool_server.next(behaviour)
    for _ in range(3):
        response = await resume(asks)
        assert (response.status_code, error_of(response)["code"]) == (409, "tool_uncertain")
        assert error_of(response)["retryable"] is False
    document = await receipt(asks)
    assert (document["state"], document["result"]) == ("uncertain", None)
    assert document["journal"]["note"]
    assert tool_server.count() == 1
    assert await asks.look(lambda: Approval.objects.get().state) == "consumed"


async def test_a_call_whose_process_is_gone_is_uncertain(
    auto: Api, tool_server: ToolServer
) -> None:
    await create(auto)
    past = clock.now() - timedelta(seconds=5 + 31)
    await auto.look(lambda: ToolCall.objects.update(state="dispatching", updated_at=past))
    response = await resume(auto)
    assert (response.status_code, error_of(response)["code"]) == (409, "tool_uncertain")
    assert tool_server.count() == 0


async def test_a_process_that_slept_before_it_made_the_call_gives_it_back(
    auto: Api, tool_server: ToolServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator may have resolved it by then: nothing is sent under an old promise."""
    slept = sleeps_after(monkeypatch, invocations, "begin", seconds=ANSWER_SECONDS + 1.0)
    await create(auto)
    response = await resume(auto)
    assert (response.status_code, error_of(response)["code"]) == (503, "lease_ended")
    assert slept
    assert tool_server.count() == 0
    assert (await resume(auto)).status_code == 200
    assert tool_server.count() == 1


@pytest.mark.parametrize(("outcome", "state"), [("done", "done"), ("not_done", "failed")])
async def test_an_operator_ends_an_uncertain_call(
    auto: Api, tool_server: ToolServer, outcome: str, state: str
) -> None:
    await create(auto)
    tool_server.next("close")
    await resume(auto)

    def resolve() -> None:
        call_id = ToolCall.objects.get().id
        resolve_call(call_id=call_id, outcome=outcome, note="I asked", actor=OPERATOR, store=STORE)

    await auto.look(resolve)
    response = await resume(auto)
    assert (response.status_code, response.json()["state"]) == (200, state)
    assert response.json()["journal"]["note"] == "I asked"
    assert tool_server.count() == 1


async def test_a_call_is_nobodys_to_resolve_before_its_tools_deadline_is_over(auto: Api) -> None:
    await create(auto)
    sent_at = clock.now() - timedelta(seconds=200)
    await auto.look(lambda: Tool.objects.update(deadline_seconds=300))
    await auto.look(lambda: ToolCall.objects.update(state="dispatching", updated_at=sent_at))

    def resolve() -> str:
        call_id = ToolCall.objects.get().id
        with pytest.raises(Conflict) as refusal:
            resolve_call(call_id=call_id, outcome="not_done", note="x", actor=OPERATOR, store=STORE)
        return refusal.value.error_code

    assert await auto.look(resolve) == "in_flight"
    assert (await receipt(auto))["state"] == "running"


async def test_a_tool_that_only_reads_may_be_asked_again(
    auto: Api, tool_server: ToolServer
) -> None:
    await auto.look(lambda: Tool.objects.update(side_effect=False))
    await create(auto)
    tool_server.next("close")
    response = await resume(auto)
    assert response.status_code == 503
    assert (await receipt(auto))["state"] == "ready"
    assert (await resume(auto)).json()["state"] == "done"
    assert len(set(tool_server.keys())) == 1
    assert tool_server.count() == 2


async def test_a_call_that_provably_sent_nothing_keeps_its_grant(
    asks: Api, tool_server: ToolServer
) -> None:
    await create(asks)
    await asks.look(approve)
    url = await asks.look(lambda: Tool.objects.get().url)
    await asks.look(lambda: Tool.objects.update(url="http://127.0.0.1:9/refund"))
    response = await resume(asks)
    assert response.status_code == 503, response.text
    assert "Nothing was sent" in error_of(response)["message"]
    document = await receipt(asks)
    assert (document["state"], document["journal"]["sent_nothing"]) == ("ready", 1)
    assert await asks.look(lambda: Approval.objects.get().state) == "approved"
    await asks.look(lambda: Tool.objects.update(url=url))
    assert (await resume(asks)).json()["state"] == "done"
    assert tool_server.count() == 1


async def test_an_answer_of_refusal_is_an_answer(auto: Api, tool_server: ToolServer) -> None:
    await create(auto)
    tool_server.answers({"error": "no such order"}, status=404)
    response = await resume(auto)
    assert (response.status_code, response.json()["state"]) == (200, "done")
    assert response.json()["result"]["http_status"] == 404
    assert tool_server.count() == 1


async def test_an_answer_that_comes_after_the_resolution_changes_nothing(
    auto: Api, tool_server: ToolServer
) -> None:
    await create(auto)
    tool_server.next("hold", text="late")
    sending = asyncio.create_task(resume(auto))
    await asyncio.to_thread(tool_server.wait_for_call)

    @transaction
    def resolved() -> None:
        rows = ToolCall.objects.filter(state="dispatching")
        rows.update(state="failed", error_code="resolved_not_done", note="not done")

    await auto.look(resolved)
    tool_server.release()
    response = await sending
    assert (response.status_code, response.json()["state"]) == (200, "failed")
