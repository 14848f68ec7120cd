"""What every store says of a job: the audit rows of its acts, the errors of its refusals (M1)."""

from kernel import audit
from kernel.errors import Conflict
from kernel.models import Job
from kernel.state.protocol import JobRecord
from kernel.states import JobState
from kernel.transactions import requires_transaction

Told = Job | JobRecord


@requires_transaction
def note_submit_in_tx(job: Told, *, actor: audit.Actor) -> None:
    """Audit that a job was made just now (D1)."""
    audit.append_in_tx(
        actor=actor,
        action="job.submit",
        kind="job",
        object_id=job.id,
        after={
            "state": job.state,
            "account_id": job.account_id,
            "request_id": job.request_id,
            "route_id": job.route_id,
            "target": job.target,
        },
    )


@requires_transaction
def note_cancel_in_tx(job: Told, *, actor: audit.Actor, reason: str) -> None:
    """Audit that a job, given as it was before, is cancelled (D1)."""
    audit.append_in_tx(
        actor=actor,
        action="job.cancel",
        kind="job",
        object_id=job.id,
        before={"state": job.state},
        after={"state": JobState.CANCELLED},
        reason=reason,
    )


def other_content(found: Told) -> Conflict:
    """The error for a request id that belongs to another job."""
    return Conflict(
        f"The request id {found.request_id} belongs to another job.",
        code="job_conflict",
        next_action="Repeat the first job unchanged, or choose another request id.",
        job_id=found.id,
    )


def finished_already(job: Told) -> Conflict:
    """The error for cancelling a job that has ended otherwise."""
    return Conflict(
        f"The job is {job.state}; it cannot be cancelled any more.",
        code="job_finished",
        next_action="Read the job: it has ended.",
        state=job.state,
    )
