"""A job that goes on: with all that came before, word for word, and from the saved rows alone."""

import itertools
import json

from kernel.jobs import steps
from kernel.jobs.conversation import first_messages, read_answer, request_body, step_messages
from kernel.models import Job, Request, ToolCall
from kernel.usage.bodies import read_body
from tests.support.agent import (
    ASKS,
    asks,
    call,
    decided,
    ended,
    make_route,
    make_tool,
    says,
    submitted,
    working_kernel,
)
from tests.support.product import look_apart
from tests.support.provider import ProviderProcess
from tests.support.tool_server import ToolServer

STEPS = 3


async def resumed_twice(shop: ProviderProcess, tool_server: ToolServer) -> str:
    """A job that waited for a person twice, and for another kernel when that one closed; its id."""
    await make_tool("refund", url=f"{tool_server.url}/refunds", policy=ASKS)
    await make_route("refund")
    for amount in (1, 2):
        says(shop, "déjà vu 👨‍💻", calls=[call("refund", {"amount": amount})])
    says(shop, "Both.")
    job_id = ""
    for _ in range(STEPS - 1):
        async with working_kernel() as kernel:
            job_id = job_id or (await submitted(kernel)).id
            (question,) = await asks(kernel, job_id)
            answer = await decided(kernel, question)
            assert answer.http_status == 200
    async with working_kernel() as kernel:
        assert (await ended(kernel, job_id)).state == "done"
    return job_id


async def test_each_step_begins_with_all_that_came_before_word_for_word(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    await resumed_twice(shop, tool_server)
    sent = [one.json["messages"] for one in shop.calls()]
    assert len(sent) == STEPS
    for before, after in itertools.pairwise(sent):
        assert after[: len(before)] == before
        assistant, *told = after[len(before) :]
        assert (assistant["role"], [one["role"] for one in told]) == ("assistant", ["tool"])


async def test_from_the_saved_rows_alone_the_same_requests_follow_byte_for_byte(
    shop: ProviderProcess, tool_server: ToolServer
) -> None:
    """Whoever takes the job, from whichever point, asks what was asked: nothing else is needed."""
    job_id = await resumed_twice(shop, tool_server)

    def made_again() -> list[tuple[bytes, bytes | None]]:
        job = Job.objects.get(id=job_id)
        plan = steps.plan_of(route_id=job.route_id)
        assert plan is not None
        messages = first_messages(instructions=plan.route.instructions, input_text=job.input_text)
        pairs = []
        for step in range(1, STEPS + 1):
            name = steps.operation_id(job_id=job_id, step=step)
            request = Request.objects.get(operation_id=name)
            body = request_body(
                service_id=plan.route.service_id, messages=messages, tools=plan.tools
            )
            pairs.append((body, read_body(request_id=request.id, kind="request")))
            saved = read_body(request_id=request.id, kind="result")
            calls = ToolCall.objects.filter(job_id=job_id, step=step).order_by("id")
            messages += step_messages(read_answer(saved or b""), list(calls))
        return pairs

    pairs = await look_apart(made_again)
    for again, kept in pairs:
        assert again == kept
    assert [json.loads(again)["messages"] for again, _ in pairs] == [
        one.json["messages"] for one in shop.calls()
    ]
