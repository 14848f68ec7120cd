"""One job row: locked, moved by compare-and-set, rendered as a record (D1)."""

import hashlib
import json
from dataclasses import fields
from typing import Any

from kernel import clock, schema, sql
from kernel.errors import KernelError, LostRace, NotFound, Unavailable
from kernel.models import Job, JobMarkers, JobPurge
from kernel.runtime.wake import JOBS, wake_after_commit_in_tx
from kernel.state.protocol import Fence, JobRecord, NewJob
from kernel.states import JobState
from kernel.transactions import requires_transaction

ERROR_CHARS_MAX = 4000
COLUMNS = tuple(each.name for each in fields(JobRecord))
# A fence is judged without the job's texts: they may be large.
FENCED = sql.columns_of(Job, without=("input_text", "result_text"))


@requires_transaction
def lock_in_tx(job_id: str) -> Job:
    """The job's row, locked. NotFound."""
    found = sql.rows(Job, {"id": job_id}, lock=sql.WAIT)
    if not found:
        raise no_job(job_id)
    return found[0]


@requires_transaction
def lock_held_in_tx(fence: Fence) -> Job:
    """The job's row, locked, running and held by `fence`. LostRace `lost_lease`."""
    found = sql.rows(Job, {"id": fence.job_id}, columns=FENCED, lock=sql.WAIT)
    if not found or found[0].state != JobState.RUNNING or not is_held_by(found[0], fence):
        raise lost_lease(fence)
    return found[0]


@requires_transaction
def move_held_in_tx(fence: Fence, **values: Any) -> None:
    """Move a running job under its fence. LostRace `lost_lease` when the fence is stale."""
    moved = sql.update_where_in_tx(
        Job,
        {"updated_at": clock.db_now(), **values},
        "id = %s AND state = %s AND owner = %s AND fence_token = %s",
        [fence.job_id, JobState.RUNNING, fence.owner, fence.token],
    )
    if moved != 1:
        raise lost_lease(fence)


@requires_transaction
def move_in_tx(row: Job, **values: Any) -> None:
    """Move a job that is still in the state and under the fence it was read in. LostRace."""
    if "updated_at" not in values:
        values["updated_at"] = clock.db_now()
    moved = sql.update_where_in_tx(
        Job,
        values,
        "id = %s AND state = %s AND fence_token = %s",
        [row.id, row.state, row.fence_token],
    )
    if moved != 1:
        raise LostRace(f"job {row.id} changed meanwhile")
    if values.get("state") == JobState.QUEUED:
        wake_after_commit_in_tx(what=JOBS)


@requires_transaction
def markers_in_tx(job_id: str, *, column: str) -> list[str]:
    """What this job was admitted for, from one marker column: the other's migration may be absent.

    KernelError `marker_damaged`.
    """
    (row,) = sql.rows(JobMarkers, {"id": job_id}, columns=(column,))
    try:
        markers = json.loads(getattr(row, column) or "[]")
    except ValueError:
        markers = None
    if not isinstance(markers, list):
        # An unreadable marker proves nothing, so nothing is admitted on it.
        raise KernelError(f"the markers of job {job_id} are damaged", code="marker_damaged")
    return markers


def queued_now() -> dict[str, Any]:
    """The columns of a job that goes back to the queue, due now by the database's clock."""
    now = clock.db_now()
    return {"state": JobState.QUEUED, "waiting_reason": "", "due_at": now, "updated_at": now}


def is_held_by(row: Job, fence: Fence) -> bool:
    """Whether this very claim was the row's last one."""
    return (row.owner, row.fence_token) == (fence.owner, fence.token)


@requires_transaction
def is_repeat_in_tx(found: Job, job: NewJob) -> bool:
    """Whether a submission asks for the very job that has its identity.

    A purged input is known by its sha256: a repeat finds its job, another content is refused.
    """
    if found.route_id != job.route_id:
        return False
    if found.input_text or not job.input_text:
        return found.input_text == job.input_text
    try:
        schema.require(schema.RETENTION)
    except Unavailable:
        return False  # nothing was purged either
    kept = JobPurge.objects.values_list("input_sha256", flat=True).get(id=found.id)
    return kept == hashlib.sha256(job.input_text.encode("utf-8", "surrogatepass")).hexdigest()


def record(row: Job) -> JobRecord:
    """The row as the port's record."""
    return JobRecord(**{name: getattr(row, name) for name in COLUMNS})


def storable(text: str, *, chars_max: int | None = None) -> str:
    """Text that every database takes: recording an outcome must not fail on a lone surrogate."""
    return text[:chars_max].encode("utf-8", "replace").decode()


def no_job(job_id: str) -> NotFound:
    """The error for a job that does not exist."""
    return NotFound(f"no job {job_id}", job_id=job_id)


def lost_lease(fence: Fence) -> LostRace:
    """The error for a stale fence: nothing was written."""
    return LostRace(
        f"job {fence.job_id} is not held by this claim any more",
        code="lost_lease",
        next_action="Stop working on it: another claim may hold it.",
        job_id=fence.job_id,
    )
