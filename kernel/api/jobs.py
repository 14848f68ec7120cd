"""Jobs over HTTP: submit, read, list, cancel (D1)."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import ConfigDict, Field

from kernel.api import documents, lists
from kernel.api.as_written import member_text
from kernel.api.door import actor_of, caller_of, kernel_of
from kernel.approvals.lookup import approvals_of_job
from kernel.errors import NotFound
from kernel.jobs.submissions import cancel_job
from kernel.models import Approval
from kernel.state import JobRecord
from kernel.state.pauses import GLOBAL, ROUTE_PREFIX, paused_scopes

router = Router(tags=["jobs"])


class JobIn(Schema):
    """A job to run. `input` is {"prompt": "..."} or {"messages": [...]} for an agent."""

    model_config = ConfigDict(extra="forbid", strict=True)
    request_id: str = Field(description="your id of this job; a repeat is the same job")
    route: str = Field(description="which kind of job: the id of a route")
    input: dict[str, Any]


class CancelJobIn(Schema):
    """Why a job is cancelled."""

    model_config = ConfigDict(extra="forbid", strict=True)
    reason: str = Field("", max_length=2000)


class JobFilter(Schema):
    """Which jobs a list shows. `after` is the `next_after` of the page before."""

    model_config = ConfigDict(extra="forbid")
    state: str = ""
    route: str = ""
    after: str = ""
    limit: int = Field(50, ge=1, le=lists.LIMIT_MAX)


@router.post("/v1/jobs")
async def submit(request: HttpRequest, payload: JobIn) -> HttpResponse:
    """Queue a job, once per `request_id`: 201, and 200 for a repeat with the same content."""
    caller = caller_of(request, "jobs:write")
    job, created = await kernel_of(request).submit_job(
        account_id=caller.account_id,
        request_id=payload.request_id,
        route_id=payload.route,
        input=payload.input,
        input_text=member_text(request.body, "input"),
        actor=actor_of(request),
    )
    return await _whole(request, job, status=201 if created else 200)


@router.get("/v1/jobs")
async def list_jobs(request: HttpRequest, wanted: Query[JobFilter]) -> HttpResponse:
    """The account's jobs, the latest change first, without their bodies."""
    caller = caller_of(request, "jobs:read")
    lists.refuse_unknown(given=request.GET, known=JobFilter.model_fields)
    page = await kernel_of(request).database.in_tx(
        lists.list_jobs,
        account_id=caller.account_id,
        state=wanted.state,
        route_id=wanted.route,
        after=wanted.after,
        limit=wanted.limit,
    )
    jobs = [documents.job_document(row) for row in page.rows]
    listed = {"jobs": jobs, "next_after": page.next_after or None}
    return documents.answer(request, listed)


@router.get("/v1/jobs/{job_id}")
async def read(request: HttpRequest, job_id: str) -> HttpResponse:
    """One job: its state, input, result and questions."""
    caller_of(request, "jobs:read")
    return await _whole(request, await _own(request, job_id))


@router.post("/v1/jobs/{job_id}/cancel")
async def cancel(
    request: HttpRequest, job_id: str, payload: CancelJobIn | None = None
) -> HttpResponse:
    """Cancel a job that has not ended; its open questions are cancelled with it."""
    caller_of(request, "jobs:write")
    await _own(request, job_id)
    kernel = kernel_of(request)
    job = await kernel.database.in_tx(
        cancel_job,
        store=kernel.store,
        job_id=job_id,
        actor=actor_of(request),
        reason=payload.reason if payload else "",
    )
    return await _whole(request, job)


async def _own(request: HttpRequest, job_id: str) -> JobRecord:
    """The job, when it belongs to the caller's account. NotFound for another account's too."""
    caller = request.auth  # type: ignore[attr-defined]  # set by ninja
    kernel = kernel_of(request)
    try:
        job = await kernel.database.in_tx(kernel.store.get, job_id=job_id)
    except NotFound:
        job = None
    if job is None or job.account_id != caller.account_id:
        raise NotFound(
            f"no job {job_id} in this account",
            next_action="Check the job id; GET /v1/jobs lists the jobs of this account.",
        )
    return job


async def _whole(request: HttpRequest, job: JobRecord, *, status: int = 200) -> HttpResponse:
    database = kernel_of(request).database
    approvals: list[Approval] = await database.in_tx(approvals_of_job, job_id=job.id)
    pauses = await database.in_tx(paused_scopes)
    pause = pauses.get(GLOBAL) or pauses.get(f"{ROUTE_PREFIX}{job.route_id}")
    document = documents.whole_job_document(job, approvals, pause=pause)
    return documents.answer(request, document, status=status)
