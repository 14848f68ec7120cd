"""Reads of approvals: by id, with its continuation, of a job, and the last one like it (C, L)."""

from kernel import schema
from kernel.errors import NotFound
from kernel.models import Approval, Continuation
from kernel.transactions import reading

LIKE_ROWS_MAX = 200  # newest approvals of a tool that are looked through for the same account


@reading
def get_approval(*, approval_id: str, account_id: str = "") -> Approval:
    """One approval. NotFound; with `account_id`, also for one of another account (C1)."""
    schema.require(schema.AGENT_JOBS)
    row = Approval.objects.filter(id=approval_id).first()
    if row is None or (account_id and row.account_id != account_id):
        raise NotFound(f"no approval {approval_id}")
    return row


@reading
def continuation_of(*, approval_id: str) -> Continuation | None:
    """The promise to carry the decision through; None: undecided, or decided before 0066 (C8)."""
    schema.require(schema.CONTINUATIONS)
    return Continuation.objects.filter(approval_id=approval_id).first()


@reading
def approvals_of_job(*, job_id: str) -> list[Approval]:
    """All questions of a job, oldest first, without their arguments.

    At most `job_approvals_count_max`.
    """
    schema.require(schema.AGENT_JOBS)
    rows = Approval.objects.defer("arguments_text").filter(job_id=job_id)
    return list(rows.order_by("id")) if job_id else []


@reading
def last_approved_like(*, approval: Approval) -> Approval | None:
    """The account's latest approved call of the same tool, decided before this one was (C1).

    Looks through the tool's newest approved ones, at most LIKE_ROWS_MAX.
    """
    schema.require(schema.AGENT_JOBS)
    rows = Approval.objects.filter(tool=approval.tool, decision="approved")
    if approval.decided_at is not None:
        rows = rows.filter(decided_at__lte=approval.decided_at)
    newest = rows.order_by("-decided_at", "-id").values_list("id", "account_id")[:LIKE_ROWS_MAX]
    for approval_id, account_id in newest:
        if account_id == approval.account_id and approval_id != approval.id:
            return Approval.objects.get(id=approval_id)
    return None
