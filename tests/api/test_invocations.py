"""Direct invocations: asked once, sent at most once by their own agent, receipts only read (C9)."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from kernel import clock
from kernel.models import Account, Approval, AuditRow, Invocation, Pause, Tool, ToolCall
from tests.api.agents import (
    ARGUMENTS,
    CALL,
    approve,
    caller,
    create,
    decide,
    make_agents_tool,
    make_tool,
    policy,
    receipt,
    resume,
)
from tests.api.conftest import Api, error_of
from tests.support.tool_server import ToolServer


def everything() -> list[Any]:
    """Every row that a receipt could touch."""
    models = (Invocation, ToolCall, Approval, AuditRow)
    return [list(model.objects.order_by("id").values()) for model in models]


# --- asked ------------------------------------------------------------------------------------


async def test_an_invocation_is_written_down_once_and_nothing_is_sent(
    auto: Api, tool_server: ToolServer
) -> None:
    first = await create(auto)
    assert first.status_code == 201, first.text
    document = first.json()
    assert (document["state"], document["approval"]) == ("ready", None)
    assert document["journal"]["state"] == "proposed"
    # The same content, in another order and with more space.
    text = '{"arguments": {"amount":25,  "order":"A-1"}, "tool":"refund","invocation_id":"call-1"}'
    again = await auto.client.post("/v1/agent/invocations", content=text)
    assert again.status_code == 200
    assert again.json()["journal"]["call_id"] == document["journal"]["call_id"]
    assert await auto.look(Invocation.objects.count) == 1
    assert tool_server.count() == 0


async def test_a_closed_account_asks_for_no_new_call(auto: Api) -> None:
    await create(auto)
    await auto.look(lambda: Account.objects.update(active=False))
    assert (await create(auto)).status_code == 200, "a repeat finds what was written"
    response = await create(auto, invocation_id="call-2")
    assert (response.status_code, error_of(response)["code"]) == (403, "account_closed")
    assert await auto.look(Invocation.objects.count) == 1


@pytest.mark.parametrize(
    "change", [{"arguments": {"order": "A-1", "amount": 26}}, {"tool": "other"}]
)
async def test_other_content_under_the_same_id_is_a_conflict(
    auto: Api, change: dict[str, Any]
) -> None:
    await auto.look(lambda: make_tool("other"))
    await create(auto)
    response = await create(auto, **change)
    assert (response.status_code, error_of(response)["code"]) == (409, "invocation_conflict")


async def test_numbers_stay_as_they_were_written(auto: Api, tool_server: ToolServer) -> None:
    text = '{"invocation_id":"call-1","tool":"refund","arguments":{"order":"A-1","amount":1.10}}'
    await auto.client.post("/v1/agent/invocations", content=text)
    other = text.replace("1.10", "1.1")
    response = await auto.client.post("/v1/agent/invocations", content=other)
    assert response.status_code == 409
    await resume(auto)
    (call,) = tool_server.sent()
    assert call.body == '{"amount":1.10,"currency":"EUR","order":"A-1"}'


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"arguments": None}, 422, "arguments"),
        ({"arguments": {}}, 422, "arguments"),
        ({"arguments": "x"}, 422, "arguments"),
        ({"arguments": {"order": "A-1", "amount": "25"}}, 422, "arguments"),
        ({"arguments": {**ARGUMENTS, "colour": "red"}}, 422, "arguments"),
        ({"tool": "nothing"}, 404, "tool"),
        ({"invocation_id": "a b"}, 400, "invocation_id"),
        ({"invocation_id": 1}, 422, "invocation_id"),
        ({"dry_run": True}, 422, "dry_run"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_written(
    auto: Api, change: dict[str, Any], status: int, field: str
) -> None:
    response = await create(auto, **change)
    assert response.status_code == status, response.text
    assert error_of(response)["field"] == field
    assert await auto.look(Invocation.objects.count) == 0


@pytest.mark.parametrize(
    "arguments",
    [b'{"order":"A","order":"B","amount":1}', b'{"order":"A","amount":NaN}', b'{"a":"\\ud800"}'],
)
async def test_arguments_that_are_no_strict_json_are_refused(auto: Api, arguments: bytes) -> None:
    raw = b'{"invocation_id":"call-1","tool":"refund","arguments":' + arguments + b"}"
    response = await auto.client.post("/v1/agent/invocations", content=raw)
    assert response.status_code in (400, 422)
    error_of(response)
    assert await auto.look(ToolCall.objects.count) == 0


async def test_arguments_that_are_missing_or_given_twice_are_refused(auto: Api) -> None:
    start = b'{"invocation_id":"call-1","tool":"refund"'
    for rest in (b"}", b',"arguments":{},"arguments":{"order":"A-1","amount":1}}'):
        response = await auto.client.post("/v1/agent/invocations", content=start + rest)
        assert (response.status_code, error_of(response)["field"]) == (422, "arguments")


async def test_a_forbidden_call_is_refused(desk: Api) -> None:
    await desk.look(lambda: make_agents_tool(policy_text=policy("forbidden")))
    response = await create(desk)
    assert (response.status_code, error_of(response)["code"]) == (403, "tool_forbidden")
    assert await desk.look(Invocation.objects.count) == 0


async def test_another_accounts_invocation_does_not_exist(auto: Api) -> None:
    from tests.support.product import make_account

    await create(auto)
    await auto.look(lambda: make_account("other"))
    async with await caller(auto, "agent", account_id="other") as other:
        for method, verb in (("POST", "resume"), ("GET", "receipt")):
            response = await other.request(method, f"/v1/agent/invocations/call-1/{verb}")
            assert response.status_code == 404
        response = await other.post("/v1/agent/invocations", json=CALL)
        assert response.status_code == 201, "ids belong to their account"


# --- resumed ----------------------------------------------------------------------------------


async def test_resume_sends_the_call_once_and_a_repeat_answers_what_was_saved(
    auto: Api, tool_server: ToolServer
) -> None:
    document = (await create(auto)).json()
    tool_server.answers({"refunded": 25}, status=201)
    first = await resume(auto)
    assert first.status_code == 200, first.text
    assert (first.json()["state"], first.json()["replayed"]) == ("done", False)
    assert first.json()["result"]["http_status"] == 201
    assert json.loads(first.json()["result"]["text"]) == {"refunded": 25}
    for _ in range(3):
        again = await resume(auto)
        assert (again.status_code, again.json()["replayed"]) == (200, True)
        assert again.json()["result"] == first.json()["result"]
    assert tool_server.keys() == [document["journal"]["idempotency_key"]]
    assert (await receipt(auto))["result"] == first.json()["result"]


async def test_an_approval_starts_nothing(asks: Api, tool_server: ToolServer) -> None:
    document = (await create(asks)).json()
    assert document["state"] == "waiting"
    approval_id = document["approval"]["approval_id"]
    response = await resume(asks)
    assert (response.status_code, error_of(response)["code"]) == (409, "approval_open")
    assert error_of(response)["approval_id"] == approval_id
    async with await caller(asks, "approvals:decide") as other:
        body = {"decision": "approved", "decision_id": "d-1"}
        answer = await other.post(f"/v1/approvals/{approval_id}/decision", json=body)
    assert answer.status_code == 200, answer.text
    await asks.settled()
    assert tool_server.count() == 0
    assert (await receipt(asks))["state"] == "ready"
    assert (await resume(asks)).json()["state"] == "done"
    assert tool_server.count() == 1
    assert await asks.look(lambda: Approval.objects.get().state) == "consumed"


async def test_who_asked_for_the_call_cannot_approve_it(asks: Api) -> None:
    approval_id = (await create(asks)).json()["approval"]["approval_id"]
    response = await decide(asks, approval_id)
    assert (response.status_code, error_of(response)["code"]) == (403, "four_eyes")


async def test_a_denied_call_is_never_sent(asks: Api, tool_server: ToolServer) -> None:
    await create(asks)
    await asks.look(lambda: approve("denied"))
    assert (await receipt(asks))["state"] == "refused"
    for _ in range(2):
        response = await resume(asks)
        assert (response.status_code, response.json()["state"]) == (200, "refused")
    assert response.json()["journal"]["error_code"] == "approval_denied"
    assert tool_server.count() == 0


async def test_a_grant_that_is_too_old_is_not_used(asks: Api, tool_server: ToolServer) -> None:
    await create(asks)
    await asks.look(approve)
    past = clock.now() - timedelta(seconds=1)
    await asks.look(lambda: Approval.objects.update(expires_at=past))
    assert (await receipt(asks))["state"] == "refused"
    response = await resume(asks)
    assert (response.status_code, response.json()["state"]) == (200, "refused")
    assert response.json()["journal"]["error_code"] == "approval_expired"
    assert response.json()["approval"]["state"] == "expired"
    assert tool_server.count() == 0


@pytest.mark.parametrize("decided", [False, True])
async def test_a_changed_tool_asks_again_and_the_old_grant_is_void(
    asks: Api, tool_server: ToolServer, decided: bool
) -> None:
    first = (await create(asks)).json()["approval"]["approval_id"]
    if decided:
        await asks.look(approve)
    await asks.look(lambda: Tool.objects.update(version=2))
    if not decided:
        await asks.look(approve)
    response = await resume(asks)
    assert (response.status_code, error_of(response)["code"]) == (409, "approval_open")
    second = error_of(response)["approval_id"]
    assert second != first
    rows = await asks.look(lambda: {row.id: row for row in Approval.objects.all()})
    assert rows[first].state == "cancelled"
    assert (rows[second].supersedes_id, rows[second].tool_version) == (first, 2)
    assert tool_server.count() == 0
    await asks.look(approve)
    assert (await resume(asks)).json()["state"] == "done"
    assert tool_server.count() == 1


async def test_a_tool_that_keeps_changing_is_asked_about_a_bounded_number_of_times(
    asks: Api, tool_server: ToolServer
) -> None:
    await create(asks)
    for version in range(2, 10):
        await asks.look(approve)
        new_version = version
        await asks.look(lambda version=new_version: Tool.objects.update(version=version))
        response = await resume(asks)
        if response.status_code == 200:
            break
    assert response.json()["state"] == "failed"
    assert response.json()["journal"]["error_code"] == "too_many_questions"
    assert response.json()["journal"]["asked"] == 3
    states = await asks.look(lambda: set(Approval.objects.values_list("state", flat=True)))
    assert states == {"cancelled"}
    assert tool_server.count() == 0


async def test_a_policy_that_became_stricter_asks_first(auto: Api, tool_server: ToolServer) -> None:
    await create(auto)
    strict = policy("approval", "high")
    await auto.look(lambda: Tool.objects.update(policy_text=strict, version=2))
    response = await resume(auto)
    assert (response.status_code, error_of(response)["code"]) == (409, "approval_open")
    assert (await receipt(auto))["approval"]["risk"] == "high"
    await auto.look(lambda: Tool.objects.update(policy_text=policy("forbidden"), version=3))
    await auto.look(approve)
    response = await resume(auto)
    assert (response.status_code, response.json()["state"]) == (200, "failed")
    assert response.json()["journal"]["error_code"] == "forbidden"
    assert tool_server.count() == 0


async def test_a_pause_uses_nothing(asks: Api, tool_server: ToolServer) -> None:
    await create(asks)
    await asks.look(approve)

    def pause() -> None:
        row = Pause(scope="global", reason="audit", paused_by="x", paused_at=clock.db_now())
        row.save(force_insert=True)

    await asks.look(pause)
    response = await resume(asks)
    assert (response.status_code, error_of(response)["code"]) == (503, "paused")
    assert "audit" in error_of(response)["message"]
    assert (await receipt(asks))["state"] == "ready"
    assert await asks.look(lambda: Approval.objects.get().state) == "approved"
    await asks.look(lambda: Pause.objects.all().delete())
    assert (await resume(asks)).json()["state"] == "done"
    assert tool_server.count() == 1


async def test_of_many_resumes_at_once_one_sends(asks: Api, tool_server: ToolServer) -> None:
    await create(asks)
    await asks.look(approve)
    tool_server.next("hold", text="done")
    sending = asyncio.create_task(resume(asks))
    await asyncio.to_thread(tool_server.wait_for_call)
    others = await asyncio.gather(*(resume(asks) for _ in range(10)))
    for response in others:
        assert (response.status_code, error_of(response)["code"]) == (409, "in_flight")
        assert error_of(response)["retryable"] is True
    assert (await receipt(asks))["state"] == "running"
    tool_server.release()
    assert (await sending).json()["state"] == "done"
    assert tool_server.count() == 1


async def test_a_refused_resume_is_no_failure_of_background_work(asks: Api) -> None:
    await create(asks)
    for name, code in ((CALL["invocation_id"], "approval_open"), ("unknown", "not_found")):
        response = await asks.client.post(f"/v1/agent/invocations/{name}/resume")
        assert error_of(response)["code"] == code
    assert not asks.kernel.background.failures


async def test_who_leaves_changes_nothing(auto: Api, tool_server: ToolServer) -> None:
    await create(auto)
    tool_server.next("hold", text="done")
    sending = asyncio.create_task(resume(auto))
    await asyncio.to_thread(tool_server.wait_for_call)
    sending.cancel()
    tool_server.release()
    await auto.settled()
    assert (await receipt(auto))["state"] == "done"


# --- receipts ---------------------------------------------------------------------------------


async def test_receipts_change_nothing(asks: Api, tool_server: ToolServer) -> None:
    await create(asks)
    tool_server.answers({"ok": 1})
    steps = (lambda: None, approve, lambda: None)
    for number, step in enumerate(steps):
        await asks.look(step)
        if number == 2:
            assert (await resume(asks)).status_code == 200
        before = await asks.look(everything)
        count = tool_server.count()
        for _ in range(5):
            document = await receipt(asks)
            head = await asks.client.head("/v1/agent/invocations/call-1/receipt")
            assert head.status_code in (200, 405)
        assert document["state"] == ("waiting", "ready", "done")[number]
        assert await asks.look(everything) == before
        assert tool_server.count() == count
    unknown = await asks.client.get("/v1/agent/invocations/none/receipt")
    assert unknown.status_code == 404
