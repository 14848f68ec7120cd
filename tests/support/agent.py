"""An agent at work: what the model says, the tools it has, a job, and where it stands.

says(provider, calls=[call("refund", {"amount": 5})])     # step 1
says(provider, "Done.")                                    # step 2
job = await submitted(kernel)
await ended(kernel, job.id)
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from kernel import approvals, audit, jobs
from kernel.approvals import Answer, Decision
from kernel.conf import override
from kernel.ids import new_id
from kernel.kernel import Kernel
from kernel.models import Approval, Job, Route, Tool, ToolCall
from kernel.state import DatabaseStore, JobRecord
from tests.support.product import OPERATOR, look, look_apart, running_kernel
from tests.support.provider import ProviderProcess
from tests.support.wait import NotInTime, wait_until_async

STORE = DatabaseStore()
CALLER = audit.Actor("token", "tok-shop")
ANN = audit.Actor("user", "ann")
AMOUNT = {
    "type": "object",
    "properties": {
        "amount": {"type": "number"},
        "note": {"type": "string"},
        "currency": {"type": "string", "default": "EUR"},
    },
    "required": ["amount"],
}
AUTO = {"default": "auto", "risk": "low"}
ASKS = {"default": "approval", "risk": "medium"}
FORBIDS = {"default": "forbidden", "risk": "high"}
ENDED = {"done", "failed", "refused", "cancelled", "parked"}
# Tests wait on facts: nothing needs a human's pace.
QUICK = {"job_poll_seconds": 0.05, "job_retry_seconds": 0.1, "continuation_interval_seconds": 0.1}


# --- what the model says ----------------------------------------------------------------------


def call(name: str, arguments: Any, call_id: str = "") -> dict[str, Any]:
    """One tool call as a model writes it; text arguments are taken as they are."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": name, "arguments": text}
    return {"id": call_id or new_id("call"), "type": "function", "function": function}


def completion(
    content: str | None = None, calls: list[dict[str, Any]] | None = None, **usage: int
) -> bytes:
    """The provider's body of one step."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = calls
    used = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, **usage}
    finish = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    value = {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": used}
    return json.dumps(value).encode()


def says(
    provider: ProviderProcess,
    content: str | None = None,
    calls: list[dict[str, Any]] | None = None,
    **params: Any,
) -> None:
    """What the model says at its next step."""
    provider.next("raw", body=completion(content, calls).decode(), **params)


# --- rows -------------------------------------------------------------------------------------


async def make_tool(tool_id: str, *, url: str, policy: Any = AUTO, **fields: Any) -> Tool:
    values = {"parameters": AMOUNT, "effect": "Refund {amount}.", "allow_private": True, **fields}
    values |= {"tool_id": tool_id, "actor": OPERATOR, "url": url, "policy": policy}
    return await look_apart(lambda: jobs.create_tool(**values))


async def make_route(*tools: str, route_id: str = "refunds", **fields: Any) -> Route:
    values = {"service_id": "gpt", "instructions": "Be brief.", **fields}
    values |= {"route_id": route_id, "actor": OPERATOR, "tools": list(tools)}
    return await look_apart(lambda: jobs.create_route(**values))


def submit(request_id: str = "", *, route_id: str = "refunds", prompt: str = "Go.") -> JobRecord:
    """A queued job of the account `acme`, in this thread."""
    return jobs.submit_job(
        store=STORE,
        account_id="acme",
        request_id=request_id or new_id("req"),
        route_id=route_id,
        input={"prompt": prompt},
        actor=CALLER,
    )[0]


async def submitted(kernel: Kernel, request_id: str = "", **fields: Any) -> JobRecord:
    """A queued job; the worker looks at once."""
    job = await look(kernel, lambda: submit(request_id, **fields))
    kernel.worker.wake()
    return job


async def reached(server: ProviderProcess, count: int = 1) -> None:
    """Wait until the server has received this many calls."""
    await asyncio.to_thread(server.wait_for_call, count=count)


# --- where it stands --------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def working_kernel(**fields: Any) -> AsyncIterator[Kernel]:
    """A kernel that runs jobs and looks often."""
    with override(**QUICK):
        async with running_kernel(worker=True, **fields) as kernel:
            yield kernel


async def job_is(
    kernel: Kernel, job_id: str, *states: str, reason: str = "", maintained: bool = False
) -> Job:
    """Wait until the job is in one of these states (and waits for `reason`); its row.

    `maintained`: job recovery runs meanwhile, as it does every few seconds. One run may pass over a
    row that somebody holds locked at that moment.
    """

    async def stands() -> Job | None:
        if maintained:
            await kernel.run_pass("job_recovery")
        row = await look(kernel, lambda: Job.objects.get(id=job_id))
        assert row.state not in ENDED - set(states), (row.state, row.error_code, row.error_text)
        fits = row.state in states and (not reason or row.waiting_reason == reason)
        return row if fits else None

    try:
        found = await wait_until_async(stands, about=f"{job_id} is {' or '.join(states)}")
    except NotInTime as error:
        row = await look(kernel, lambda: STORE.get(job_id=job_id))
        raise NotInTime(f"{error}; it is {row}") from None
    assert found is not None
    return found


async def ended(kernel: Kernel, job_id: str, *, maintained: bool = False) -> Job:
    """Wait until the job has ended, however; its row."""
    return await job_is(kernel, job_id, *ENDED, maintained=maintained)


async def asks(kernel: Kernel, job_id: str, count: int = 1) -> list[Approval]:
    """Wait until the job waits for this many open questions; their rows, in order."""

    def opened() -> list[Approval]:
        return list(Approval.objects.filter(job_id=job_id, state="open").order_by("id"))

    async def waits() -> list[Approval]:
        row = await look(kernel, lambda: Job.objects.get(id=job_id))
        assert row.state not in ENDED, (row.state, row.error_code, row.error_text)
        rows = await look(kernel, opened)
        fits = row.waiting_reason == "approval" and len(rows) == count
        return rows if fits else []

    return await wait_until_async(waits, about=f"{job_id} asks {count} question(s)")


async def decided(
    kernel: Kernel, approval: Approval, decision: str = "approved", reason: str = "because"
) -> Answer:
    """Ann decides."""
    return await kernel.decide(
        Decision(approval.id, decision, new_id("dec"), reason, ANN, approval.arguments_sha256)
    )


async def calls_of(kernel: Kernel, job_id: str) -> list[ToolCall]:
    """The journal of a job, in order."""
    rows = await look(kernel, lambda: list(ToolCall.objects.filter(job_id=job_id)))
    return sorted(rows, key=lambda row: [int(part) for part in row.id.split(".")[1:]])


async def ticks(kernel: Kernel, name: str) -> None:
    """Run one maintenance pass to its end."""
    await kernel.run_pass(name)


def carried(approval: Approval) -> str:
    """How far the decision was carried through, as maintenance finds it now."""
    return approvals.carry_through(approval_id=approval.id, store=STORE).state
