"""The invariants of jobs that pause for a person. kernel/invariants.py asks them all."""

import json
from datetime import timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from kernel import clock
from kernel.approvals.decisions import APPROVED, continuation_id_of
from kernel.checks import Invariant, Offender, either, select, since
from kernel.conf import conf
from kernel.jobs import steps
from kernel.models import Approval, Continuation, Job, JobMarkers, ToolCall
from kernel.schema import AGENT_JOBS, CONTINUATIONS
from kernel.states import ApprovalState, CallState, JobState, Owed, Waiting

# An operator's answer and the job's return to the queue may be two transactions: so long apart.
RESUME_SECONDS = 60
NEEDED = (CONTINUATIONS, AGENT_JOBS)


def _markers_without_decision(limit: int) -> list[Offender]:
    """Newest jobs with a marker that is there twice, or is not of an approved decision (C5)."""
    marked = JobMarkers.objects.exclude(approval_continuation_keys=None).order_by("-id")
    rows = marked.values_list("id", "approval_continuation_keys")[: conf.check_sample_rows]
    faults = ((job_id, _marker_fault(job_id, text or "[]")) for job_id, text in rows)
    return [Offender(job_id, what) for job_id, what in faults if what][:limit]


def _marker_fault(job_id: str, text: str) -> str:
    try:
        markers = json.loads(text)
        given = [str(each) for each in markers]
    except (ValueError, TypeError):
        return "the markers cannot be read"
    if len(set(given)) != len(given):
        return f"a marker is there twice: {text}"
    decided = Approval.objects.filter(job_id=job_id, decision=APPROVED).values_list(
        "id", "decision_id"
    )
    known = {
        continuation_id_of(approval_id=approval_id, decision_id=decision_id or "")
        for approval_id, decision_id in decided
    }
    foreign = set(given) - known
    return f"no approved decision: {', '.join(sorted(foreign))}" if foreign else ""


def _waiting(reason: str) -> QuerySet[Job]:
    return Job.objects.filter(state=JobState.WAITING, waiting_reason=reason).order_by("id")


def _waits_for_no_decision(limit: int) -> list[Offender]:
    opened = Approval.objects.filter(job_id=OuterRef("id"), state=ApprovalState.OPEN)
    owed = Continuation.objects.filter(job_id=OuterRef("id"), state=Owed.OWED)
    rows = _waiting(Waiting.APPROVAL).filter(~Exists(opened), ~Exists(owed))
    return [
        Offender(job_id, "it waits; no question is open, nothing is owed")
        for job_id in rows.values_list("id", flat=True)[:limit]
    ]


def _waits_for_no_call(limit: int) -> list[Offender]:
    calls = ToolCall.objects.filter(job_id=OuterRef("id"))
    uncertain = calls.filter(state=CallState.DISPATCHING)
    late = clock.db_now() - timedelta(seconds=RESUME_SECONDS)
    just_now = calls.filter(updated_at__gte=late)
    rows = _waiting(Waiting.CALL_UNCERTAIN).filter(~Exists(uncertain), ~Exists(just_now))
    return [
        Offender(job_id, "it waits; none of its calls is uncertain")
        for job_id in rows.values_list("id", flat=True)[:limit]
    ]


def _waits_for_no_step(limit: int) -> list[Offender]:
    late = clock.db_now() - timedelta(seconds=RESUME_SECONDS)
    rows = _waiting(Waiting.MODEL_UNKNOWN).values_list("id", "account_id")
    return [
        Offender(job_id, "it waits; the outcome of none of its model steps is unknown")
        for job_id, account_id in rows[: conf.check_sample_rows]
        if not steps.has_unknown_step(account_id=account_id, job_id=job_id)
        and not steps.changed_since(account_id=account_id, job_id=job_id, at=late)
    ][:limit]


def _admitted_without_marker(limit: int) -> list[Offender]:
    """Jobs whose grant was used although no decision ever admitted them (C5)."""
    since_0066 = Continuation.objects.values("approval_id")
    used = Approval.objects.filter(
        job_id=OuterRef("id"), state=ApprovalState.CONSUMED, id__in=since_0066
    )
    nothing = Q(approval_continuation_keys=None) | Q(approval_continuation_keys__in=["", "[]"])
    unmarked = JobMarkers.objects.filter(nothing).order_by("id")
    return [
        Offender(job_id, "a grant was used; no marker is left")
        for job_id in unmarked.filter(Exists(used)).values_list("id", flat=True)[:limit]
    ]


JOBS: tuple[Invariant, ...] = (
    Invariant(
        33,
        "a_decision_admits_once",
        "The newest jobs' markers are unique, and each is of an approved decision about that job;"
        " a job whose grant was used has kept its marker.",
        "C5",
        since(NEEDED, either(_markers_without_decision, _admitted_without_marker)),
    ),
    Invariant(
        34,
        "waiting_jobs_wait_for_something",
        "A waiting job has an open question, an owed continuation, an unknown model step or an"
        " uncertain call.",
        "C7, D2, D3",
        since(NEEDED, either(_waits_for_no_decision, _waits_for_no_call, _waits_for_no_step)),
    ),
    Invariant(
        35,
        "ended_jobs_ask_nothing",
        "A job that has ended has no open question and no unused grant.",
        "C8",
        since(
            NEEDED,
            select(
                "SELECT a.id, a.state, a.job_id, j.state AS job FROM bz_approvals a"
                " JOIN bz_jobs j ON j.id = a.job_id"
                " WHERE a.state IN ('open', 'approved') AND a.tool_call_id <> ''"
                " AND j.state IN ('done', 'failed', 'refused', 'cancelled')"
            ),
        ),
    ),
)
