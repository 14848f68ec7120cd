"""One job row: locked, moved by compare-and-set, rendered as a record (D1)."""

import hashlib
import json
from dataclasses import fields
from typing import Any

from kernel import clock, schema
from kernel.errors import KernelError, LostRace, NotFound, Unavailable
from kernel.models import Job, JobMarkers, JobPurge
from kernel.runtime.wake import JOBS, wake_after_commit_in_tx
from kernel.state.protocol import Fence, JobRecord, NewJob
from kernel.states import JobState
from kernel.transactions import requires_transaction

ERROR_CHARS_MAX = 4000
COLUMNS = tuple(each.name for each in fields(JobRecord))


@requires_transaction
def lock_in_tx(job_id: str) -> Job:
    """The job's row, locked. NotFound."""
    row = Job.objects.select_for_update().filter(id=job_id).first()
    if row is None:
        raise no_job(job_id)
    return row


@requires_transaction
def lock_held_in_tx(fence: Fence) -> Job:
    """The job's row, locked, running and held by `fence`. LostRace `lost_lease`."""
    row = Job.objects.select_for_update().filter(id=fence.job_id).first()
    if row is None or row.state != JobState.RUNNING or not is_held_by(row, fence):
        raise lost_lease(fence)
    return row


@requires_transaction
def move_held_in_tx(fence: Fence, **values: Any) -> None:
    """Move a running job under its fence. LostRace `lost_lease` when the fence is stale."""
    held = Job.objects.filter(
        id=fence.job_id, state=JobState.RUNNING, owner=fence.owner, fence_token=fence.token
    )
    if held.update(updated_at=clock.db_now(), **values) != 1:
        raise lost_lease(fence)


@requires_transaction
def move_in_tx(row: Job, **values: Any) -> None:
    """Move a job that is still in the state and under the fence it was read in. LostRace."""
    same = Job.objects.filter(id=row.id, state=row.state, fence_token=row.fence_token)
    if same.update(updated_at=clock.db_now(), **values) != 1:
        raise LostRace(f"job {row.id} changed meanwhile")
    if values.get("state") == JobState.QUEUED:
        wake_after_commit_in_tx(what=JOBS)


@requires_transaction
def markers_in_tx(job_id: str, *, column: str) -> list[str]:
    """What this job was admitted for, from one marker column: the other's migration may be absent.

    KernelError `marker_damaged`.
    """
    text = JobMarkers.objects.values_list(column, flat=True).get(id=job_id)
    try:
        markers = json.loads(text or "[]")
    except ValueError:
        markers = None
    if not isinstance(markers, list):
        # An unreadable marker proves nothing, so nothing is admitted on it.
        raise KernelError(f"the markers of job {job_id} are damaged", code="marker_damaged")
    return markers


def queued_now() -> dict[str, Any]:
    """The columns of a job that goes back to the queue, due now by the database's clock."""
    return {"state": JobState.QUEUED, "waiting_reason": "", "due_at": clock.db_now()}


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
