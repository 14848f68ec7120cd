"""Executors over HTTP: remote workers claim, heartbeat and report jobs of their account (D5)."""

import json
from functools import partial
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import ConfigDict, Field

from kernel.api import documents
from kernel.api.as_written import member_text
from kernel.api.door import caller_of, kernel_of
from kernel.approvals.arguments import canonical_text
from kernel.conf import conf
from kernel.delivery.sending import end_child_in_tx
from kernel.errors import Conflict, InvalidInput
from kernel.ids import check_id
from kernel.state import Fence, JobRecord
from kernel.states import JobState

router = Router(tags=["executor"])

TARGET = "executor"
CLAIM_MAX, HEARTBEAT_MAX = 50, 200
FENCE_MAX = 2**63 - 1


class ClaimIn(Schema):
    """How many jobs to take at most."""

    model_config = ConfigDict(extra="forbid", strict=True)
    limit: int = Field(1, ge=1, le=CLAIM_MAX)


class HeldIn(Schema):
    """One claimed job and the fence its claim came with."""

    model_config = ConfigDict(extra="forbid", strict=True)
    job_id: str
    fence: int = Field(ge=1, le=FENCE_MAX)


class HeartbeatIn(Schema):
    """The jobs that are still being worked on."""

    model_config = ConfigDict(extra="forbid", strict=True)
    jobs: list[HeldIn] = Field(max_length=HEARTBEAT_MAX)


class ResultIn(Schema):
    """How a job ended. `result` is any JSON value; `error` says why it failed."""

    model_config = ConfigDict(extra="forbid", strict=True)
    job_id: str
    fence: int = Field(ge=1, le=FENCE_MAX)
    state: Literal["done", "failed"]
    result: Any = None
    error: str = Field("", max_length=4000)


@router.post("/v1/executor/claim")
async def claim(request: HttpRequest, payload: ClaimIn | None = None) -> HttpResponse:
    """Take due jobs of the account, oldest first; each comes with a fence and a lease."""
    caller = caller_of(request, "executor")
    kernel = kernel_of(request)
    jobs = await kernel.database.in_tx(
        kernel.store.claim,
        owner=caller.token_id,
        target=TARGET,
        limit=payload.limit if payload else 1,
        account_id=caller.account_id,
    )
    claimed = [documents.claimed_document(job) for job in jobs]
    return documents.answer(request, {"jobs": claimed})


@router.post("/v1/executor/heartbeat")
async def heartbeat(request: HttpRequest, payload: HeartbeatIn) -> HttpResponse:
    """Renew the leases of jobs; stop working on those that are `lost`."""
    caller = caller_of(request, "executor")
    kernel = kernel_of(request)
    fences = [_fence(caller.token_id, job.job_id, job.fence) for job in payload.jobs]
    held = await kernel.database.in_tx(kernel.store.heartbeat, fences=fences)
    ids = sorted({fence.job_id for fence in fences})
    beaten = {
        "held": [job_id for job_id in ids if job_id in held],
        "lost": [job_id for job_id in ids if job_id not in held],
        "heartbeat_seconds": conf.job_heartbeat_seconds,
        "lease_seconds": conf.job_lease_seconds,
    }
    return documents.answer(request, beaten)


@router.post("/v1/executor/result")
async def result(request: HttpRequest, payload: ResultIn) -> HttpResponse:
    """Report how a job ended, once; the identical report again is fine, a late one is 409."""
    caller = caller_of(request, "executor")
    kernel = kernel_of(request)
    text, failed = _result_text(payload, request.body), payload.state == JobState.FAILED
    await kernel.database.in_tx(
        kernel.store.finish,
        fence=_fence(caller.token_id, payload.job_id, payload.fence),
        state=payload.state,
        result_text=text,
        error_code="executor_failed" if failed else "",
        error_text=payload.error,
        # A notification's child ends its notification in the same transaction (F7).
        also=partial(
            end_child_in_tx, job_id=payload.job_id, delivered=not failed, error=payload.error
        ),
    )
    job: JobRecord = await kernel.database.in_tx(kernel.store.get, job_id=payload.job_id)
    if (job.state, job.result_text) != (payload.state, text):
        raise Conflict(
            "This job was reported with another result, which stays.",
            code="result_conflict",
            next_action="Nothing more to do: the first report counts.",
            state=job.state,
        )
    return documents.answer(request, documents.job_document(job))


def _result_text(payload: ResultIn, body: bytes) -> str:
    """The result as it was written, in one text, so that a repeat is known as one."""
    if payload.state == JobState.DONE and payload.error:
        raise InvalidInput("a job that is done has no error", field="error")
    if payload.state == JobState.FAILED and not payload.error.strip():
        raise InvalidInput("say why it failed", field="error")
    if payload.result is None:
        return ""
    try:
        json.dumps(payload.result, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # what no reader could take again, 1e999 among it
        raise InvalidInput("not a value that JSON has, in UTF-8", field="result") from None
    given, most = member_text(body, "result"), conf.job_result_bytes_max
    return canonical_text(given, field="result", bytes_max=most)


def _fence(owner: str, job_id: str, token: int) -> Fence:
    return Fence(check_id(job_id, field="job_id", chars_max=64), owner, token)
