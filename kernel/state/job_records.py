"""Job records without a database: new ones, moved ones, and as plain JSON values (M1)."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any

from kernel import clock
from kernel.ids import new_id
from kernel.state.protocol import JobRecord, NewJob
from kernel.states import JobState

TIMES = tuple(each.name for each in fields(JobRecord) if each.name.endswith("_at"))


def fresh(job: NewJob) -> JobRecord:
    """A job that was asked for just now: queued, due at once."""
    now = clock.now()
    return JobRecord(
        id=new_id("job"),
        account_id=job.account_id,
        request_id=job.request_id,
        route_id=job.route_id,
        target=job.target,
        parent_id=job.parent_id,
        state=JobState.QUEUED,
        waiting_reason="",
        input_text=job.input_text,
        result_text="",
        error_code="",
        error_text="",
        attempts=0,
        owner="",
        fence_token=0,
        lease_expires_at=None,
        due_at=now,
        created_at=now,
        finished_at=None,
        updated_at=now,
    )


def moved(job: JobRecord, **values: Any) -> JobRecord:
    """The same job with other values, changed now."""
    return replace(job, updated_at=clock.now(), **values)


def queued(job: JobRecord, **values: Any) -> JobRecord:
    """The same job back in the queue, due now."""
    return moved(job, state=JobState.QUEUED, waiting_reason="", due_at=clock.now(), **values)


def plain(job: JobRecord) -> dict[str, Any]:
    """The job as JSON values; times as ISO 8601."""
    values = asdict(job)
    return values | {name: values[name] and values[name].isoformat() for name in TIMES}


def parsed(values: dict[str, Any]) -> JobRecord:
    """The job that `plain` wrote. TypeError, ValueError when it is none."""
    times = {name: values[name] and datetime.fromisoformat(values[name]) for name in TIMES}
    return JobRecord(**(values | times))


def whole(job: JobRecord, markers: Mapping[str, list[str]]) -> dict[str, Any]:
    """One record of a job file that says all of this job."""
    marked = {job.id: markers[job.id]} if job.id in markers else {}
    return {"jobs": [plain(job)], "markers": marked}
