"""The agent run: its steps, its tool calls, questions (D2; cases 10, 13, 14, 16, 17, 35, 56)."""

import json

import pytest

from kernel import clock
from kernel.models import Approval, Request
from kernel.states import CallState
from tests.support.agent import (
    ASKS,
    FORBIDS,
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

SIX = {"amount": 6}
FINAL = '{"amount":6,"currency":"EUR"}'


def result_of(job) -> str:
    return json.loads(job.result_text)["content"]


def told(provider: ProviderProcess) -> list[dict]:
    """What the model was told of its calls, in the latest request."""
    messages = provider.calls()[-1].json["messages"]
    return [json.loads(one["content"]) for one in messages if one["role"] == "tool"]


async def test_a_job_without_tools_ends_with_the_models_text(shop: ProviderProcess) -> None:
    await make_route()
    says(shop, "Hello.")
    async with working_kernel() as kernel:
        job = await submitted(kernel, prompt="Say hello")
        row = await ended(kernel, job.id)
    assert (row.state, result_of(row), row.attempts) == ("done", "Hello.", 1)
    (sent,) = shop.calls()
    assert [m["content"] for m in sent.json["messages"]] == ["Be brief.", "Say hello"]
    assert "tools" not in sent.json


async def test_a_tool_that_needs_nobody_is_called_once_with_final_arguments_under_its_key(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund")
    says(shop, calls=[call("refund", SIX, "c1")])
    says(shop, "Done.")
    tool_server.answers({"refund_id": "rf-1"}, status=201)
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        row = await ended(kernel, job.id)
        (made,) = await calls_of(kernel, job.id)
    assert (row.state, result_of(row)) == ("done", "Done.")
    (sent,) = tool_server.sent()
    assert (sent.method, sent.path, sent.body) == ("POST", "/refunds", FINAL)
    assert sent.headers["idempotency-key"] == f"bz:{job.id}.1.0" == made.idempotency_key
    assert (made.state, made.http_status, made.arguments_text) == (CallState.DONE, 201, FINAL)
    assert told(shop) == [{"status": 201, "body": '{"refund_id": "rf-1"}'}]
    offered = shop.calls()[0].json["tools"][0]["function"]
    assert (offered["name"], offered["parameters"]["required"]) == ("refund", ["amount"])


async def test_an_approved_job_goes_on_without_generating_its_steps_again(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("look", url=f"{tool_server.url}/look")
    await make_tool("refund", url=f"{tool_server.url}/refunds", policy=ASKS)
    await make_route("look", "refund")
    says(shop, calls=[call("look", SIX)])
    says(shop, calls=[call("refund", SIX)])
    says(shop, "Refunded.")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        (question,) = await asks(kernel, job.id)
        assert (shop.count(), len(tool_server.sent("/look"))) == (2, 1)
        assert tool_server.sent("/refunds") == []
        answer = await decided(kernel, question)
        assert (answer.http_status, answer.continuation_pending) == (200, False)
        row = await ended(kernel, job.id)
        used = await look(kernel, lambda: Approval.objects.get(id=question.id))
    assert (row.state, result_of(row)) == ("done", "Refunded.")
    assert shop.count() == 3, "the two saved steps were read, not generated"
    assert (len(tool_server.sent("/look")), len(tool_server.sent("/refunds"))) == (1, 1)
    assert used.state == "consumed"
    assert tool_server.sent("/refunds")[0].sha256 == question.arguments_sha256


async def test_three_rounds_of_review_run_three_tool_calls(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds", policy=ASKS)
    await make_route("refund")
    for amount in (1, 2, 3):
        says(shop, calls=[call("refund", {"amount": amount})])
    says(shop, "All three.")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        for _ in range(3):
            (question,) = await asks(kernel, job.id)
            await decided(kernel, question)
        await ended(kernel, job.id)
    assert [json.loads(one.body)["amount"] for one in tool_server.sent()] == [1, 2, 3]
    assert len(set(tool_server.keys())) == 3
    assert shop.count() == 4


async def test_a_decision_right_after_the_question_admits_the_job_once(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    """Case 14: the question exists only together with the pause, so no decision comes too early."""
    await make_tool("refund", url=f"{tool_server.url}/refunds", policy=ASKS)
    await make_route("refund")
    says(shop, calls=[call("refund", SIX)])
    says(shop, "Done.")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        while not (found := await look(kernel, lambda: list(Approval.objects.all()))):
            pass
        answer = await decided(kernel, found[0])
        assert answer.http_status == 200
        row = await ended(kernel, job.id)
    assert row.state == "done"
    assert len(tool_server.sent()) == 1


async def test_three_questions_of_one_step_approved_are_three_executions(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds", policy=ASKS)
    await make_route("refund")
    says(shop, calls=[call("refund", {"amount": n}) for n in (1, 2, 3)])
    says(shop, "Done.")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        first, second, third = await asks(kernel, job.id, 3)
        await decided(kernel, second)
        await decided(kernel, first)
        row = await job_is(kernel, job.id, "waiting", reason="approval")
        assert tool_server.sent() == [], "nothing runs while a sibling waits"
        await decided(kernel, third)
        row = await ended(kernel, job.id)
    assert row.state == "done"
    assert [json.loads(one.body)["amount"] for one in tool_server.sent()] == [1, 2, 3]
    assert [one["status"] for one in told(shop)] == [200, 200, 200]


async def test_one_refusal_refuses_the_job_and_voids_what_was_approved(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds", policy=ASKS)
    await make_tool("look", url=f"{tool_server.url}/look")
    await make_route("refund", "look")
    wanted = [call("refund", {"amount": n}) for n in (1, 2, 3)]
    says(shop, calls=[*wanted, call("look", SIX)])
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        first, second, _ = await asks(kernel, job.id, 3)
        assert len(tool_server.sent("/look")) == 1, "the sibling that needs nobody ran at once"
        await decided(kernel, first)
        await decided(kernel, second, "denied", "not this one")
        row = await ended(kernel, job.id)
        states = await look(
            kernel, lambda: list(Approval.objects.order_by("id").values_list("state", flat=True))
        )
        calls = await calls_of(kernel, job.id)
    assert (row.state, row.error_code) == ("refused", "approval_denied")
    assert "not this one" in row.error_text
    assert states == ["cancelled", "denied", "cancelled"]
    assert tool_server.sent("/refunds") == []
    assert [one.state for one in calls] == ["failed", "failed", "failed", "done"]


async def test_forbidden_unknown_and_wrong_calls_fail_at_once_and_the_model_sees_why(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("delete", url=f"{tool_server.url}/delete", policy=FORBIDS)
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("delete", "refund")
    wanted = [
        call("delete", SIX),
        call("refund", '{"amount": 1, "amount": 2}'),
        call("refund", {"amount": "6"}),
        call("format_disk", {}),
        call("refund", SIX),
    ]
    says(shop, calls=wanted)
    says(shop, "I could do one of these.")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        row = await ended(kernel, job.id)
        calls = await calls_of(kernel, job.id)
    assert row.state == "done"
    codes = ["forbidden", "invalid_arguments", "invalid_arguments", "unknown_tool", ""]
    assert [one.error_code for one in calls] == codes
    assert [one.get("error", "") for one in told(shop)] == codes
    assert "arguments.amount" in told(shop)[2]["message"]
    assert len(tool_server.sent()) == 1


async def test_the_same_call_again_in_a_later_step_is_a_new_question(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds", policy=ASKS)
    await make_route("refund")
    says(shop, calls=[call("refund", SIX, "c1")])
    says(shop, calls=[call("refund", SIX, "c1")])
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        (first,) = await asks(kernel, job.id)
        await decided(kernel, first)
        (second,) = await asks(kernel, job.id)
        assert second.id != first.id
        assert len(tool_server.sent()) == 1, "one approval, one execution"


@pytest.mark.parametrize("kind", ["tokens_max", "cost_nano_max", "steps_max"])
async def test_a_limit_of_the_route_ends_the_job_with_its_own_code(
    shop: ProviderProcess, tool_server: ToolServer, kind: str
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund", **{kind: 1})
    says(shop, calls=[call("refund", SIX)])
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        row = await ended(kernel, job.id)
    code = {"tokens_max": "tokens", "cost_nano_max": "cost", "steps_max": "steps"}[kind]
    assert (row.state, row.error_code) == ("failed", f"{code}_exceeded")
    assert shop.count() == 1
    assert len(tool_server.sent()) == 1


async def test_time_spent_waiting_for_a_person_is_no_run_time(
    shop: ProviderProcess, tool_server: ToolServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds", policy=ASKS)
    await make_route("refund", run_seconds_max=60)
    says(shop, calls=[call("refund", SIX)])
    says(shop, "Done.")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        (question,) = await asks(kernel, job.id)
        before = clock.monotonic
        monkeypatch.setattr(clock, "monotonic", lambda: before() + 3600)
        await decided(kernel, question)
        row = await ended(kernel, job.id)
    assert row.state == "done"


async def test_a_run_that_takes_too_long_ends_with_its_own_code(
    shop: ProviderProcess, tool_server: ToolServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_tool("refund", url=f"{tool_server.url}/refunds")
    await make_route("refund", run_seconds_max=60)
    says(shop, calls=[call("refund", SIX)])
    tool_server.next("hold")
    before = clock.monotonic
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        await reached(tool_server)
        monkeypatch.setattr(clock, "monotonic", lambda: before() + 61)
        tool_server.release()
        row = await ended(kernel, job.id)
    assert (row.state, row.error_code) == ("failed", "run_time_exceeded")


@pytest.mark.parametrize(
    ("body", "says_why"),
    [
        ("{", "not JSON"),
        ('{"choices": []}', "no choices"),
        ('{"choices": [{"message": {"role": "assistant", "content": 5}}]}', "content"),
        ('{"choices": [{"message": {"role": "assistant", "content": null}}]}', "neither"),
        ('{"choices": [{"message": {"tool_calls": [{"id": "", "function": {}}]}}]}', "id"),
        ('{"choices": [{"message": {"tool_calls": 5}}]}', "list"),
    ],
)
async def test_an_answer_that_breaks_the_protocol_fails_the_job_with_the_reason(
    shop: ProviderProcess, body: str, says_why: str
) -> None:
    await make_route()
    shop.next("raw", body=body)
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        row = await ended(kernel, job.id)
        request = await look(kernel, Request.objects.get)
    assert (row.state, row.error_code) == ("failed", "model_answer_unreadable")
    assert says_why in row.error_text
    assert request.result_state == "complete", "the provider's bytes are kept"


async def test_a_refused_model_request_fails_the_job_with_the_reason(shop: ProviderProcess) -> None:
    await make_route()
    shop.next("status_401")
    async with working_kernel() as kernel:
        job = await submitted(kernel)
        row = await ended(kernel, job.id)
    assert (row.state, row.error_code) == ("failed", "model_failed")
    assert "401" in row.error_text
