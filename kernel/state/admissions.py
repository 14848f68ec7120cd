"""One admission per decision and per replay: the marker on the job, written once (C5, F5).

The marker is written by the transaction that queues the job. It stays for good, so a lost
acknowledgement, a retry or a later run never admits the job again for the same reason.
"""

import json
from collections.abc import Callable
from typing import Any

from kernel import schema
from kernel.errors import Conflict
from kernel.models import Job, JobMarkers
from kernel.state import rows
from kernel.state.protocol import Admission, JobRecord
from kernel.states import JOB, JobState, Waiting
from kernel.transactions import transaction

APPROVAL_KEYS, DELIVERY_KEYS = "approval_continuation_keys", "delivery_replay_keys"
IN_FLIGHT = frozenset({JobState.QUEUED, JobState.RUNNING})
RUN_ANEW: dict[str, Any] = {
    "attempts": 0,
    "result_text": "",
    "error_code": "",
    "error_text": "",
    "finished_at": None,
    "owner": "",
    "lease_expires_at": None,
}


def requeue_approved_job_once(
    *, job_id: str, marker: str, may_admit: Callable[[], str]
) -> Admission:
    """Admit a waiting job once for one decision; the marker stays for good (C5).

    `may_admit()` is asked under the job's lock: 'yes' admits, 'wait' writes the marker only,
    anything else refuses. A job that waits for something else than an approval is left for later.
    Unavailable without migration 0066. NotFound.
    """
    schema.require(schema.CONTINUATIONS)
    return _admit_once(job_id=job_id, marker=marker, may_admit=may_admit)


@transaction
def _admit_once(*, job_id: str, marker: str, may_admit: Callable[[], str]) -> Admission:
    row = rows.lock_in_tx(job_id)
    markers = rows.markers_in_tx(job_id, column=APPROVAL_KEYS)
    if marker in markers:
        return Admission.ALREADY
    if row.state in IN_FLIGHT:
        return Admission.IN_FLIGHT
    if row.state != JobState.WAITING:
        return Admission.NOT_WAITING
    if row.waiting_reason != Waiting.APPROVAL:
        return Admission.IN_FLIGHT
    verdict = may_admit()
    if verdict not in ("yes", "wait"):
        return Admission.REFUSED
    marked = {APPROVAL_KEYS: json.dumps([*markers, marker])}
    if verdict == "wait":
        JobMarkers.objects.filter(id=job_id).update(**marked)
        return Admission.WAITS
    rows.move_in_tx(row, **marked, **rows.queued_now())
    return Admission.ADMITTED


def ensure_executor_replay() -> None:
    """Whether a replay can reach executors now (F8). Unavailable without migration 0067."""
    schema.require(schema.REPLAY)


def requeue_delivery_job_once(
    *,
    job_id: str,
    marker: str,
    verify: Callable[[JobRecord], str],
    also: Callable[[], None] | None = None,
) -> Admission:
    """Queue a notification's child job that has ended without a result, once per replay (F4, F5).

    `verify(job)` is asked under the job's lock and names the first binding that does not fit ('' =
    all fit). The job keeps its identities and input; it runs anew. `also` runs before the commit,
    when the job is admitted only.

    Conflict `binding_mismatch` (details: field). Unavailable without migration 0067. NotFound.
    """
    ensure_executor_replay()
    return _requeue_delivery(job_id=job_id, marker=marker, verify=verify, also=also)


@transaction
def _requeue_delivery(
    *,
    job_id: str,
    marker: str,
    verify: Callable[[JobRecord], str],
    also: Callable[[], None] | None,
) -> Admission:
    row = rows.lock_in_tx(job_id)
    markers = rows.markers_in_tx(job_id, column=DELIVERY_KEYS)
    if marker in markers:
        return Admission.ALREADY
    if field := verify(rows.record(row)):
        raise binding_mismatch(row, field)
    if row.state in IN_FLIGHT:
        return Admission.IN_FLIGHT
    if row.state not in JOB.moves_to(JobState.QUEUED, by="requeue_delivery_job_once"):
        return Admission.NOT_WAITING
    marked = {DELIVERY_KEYS: json.dumps([*markers, marker])}
    rows.move_in_tx(row, **marked, **rows.queued_now(), **RUN_ANEW)
    if also is not None:
        also()
    return Admission.ADMITTED


def binding_mismatch(row: Job, field: str) -> Conflict:
    """The error for a child that is not the one the dead letter names: nothing was queued."""
    return Conflict(
        f"Job {row.id} does not fit the dead letter: {field} differs.",
        code="binding_mismatch",
        next_action="Nothing was sent. Compare the job with the dead letter; do not replay it.",
        binding=field,
        job_id=row.id,
    )
