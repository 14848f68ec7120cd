"""Continuations: a recorded decision is carried through, whatever happens in between (C4-C8, C10).

Three steps, each its own transaction: the audit row `carried_through`, the state store's admission
(or refusal) of the original job, owed -> done. Any of them may be repeated: the audit row is looked
for first, the marker on the job admits once, the last move is a compare-and-set. Door and
maintenance may carry the same decision at once.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from kernel import audit, clock, schema, sql
from kernel.approvals.decisions import (
    APPROVED,
    EXPIRED,
    Decision,
    continuation_id_of,
    decide_surely,
)
from kernel.approvals.requests import KIND, void_in_tx
from kernel.conf import conf
from kernel.errors import Conflict, KernelError, NotFound, Unavailable
from kernel.models import Approval, AuditRow, Continuation, ToolCall
from kernel.runtime.maintenance import PageReport
from kernel.state import Admission, RuntimeStateStore, protocol
from kernel.states import ApprovalState, CallState, JobState, Owed
from kernel.transactions import reading, requires_transaction, transaction
from kernel.usage.json_text import clean

log = logging.getLogger(__name__)

CARRIED, IN_FLIGHT, OWED = "carried_through", "in_flight", "owed"
CARRIED_ACTION = "approval.carried_through"
REFUSED_CODES = {"denied": "approval_denied", "expired": "approval_expired"}
NOT_ENDED = frozenset({JobState.QUEUED, JobState.RUNNING, JobState.WAITING})
ERROR_CHARS_MAX = 2000
DOUBLINGS_MAX = 30
CARRIER = audit.Actor("system", "continuation")


@dataclass(frozen=True, slots=True)
class Carried:
    """What became of one attempt.

    `state`: `carried_through`; `in_flight` (the job has not paused yet: maintenance comes back); or
    `owed` (a step failed: `error` says how, maintenance tries again). `admission` is the state
    store's answer ('' where it was not asked), `attempts` counts failures.
    """

    state: str
    admission: str = ""
    attempts: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What every door answers: the recorded decision and how far it was carried (C4).

    200: carried through, or `continuation_pending` while the job is in flight. 503: recorded, a
    step failed; the identical retry converges to 200.
    """

    approval: Approval
    continuation_pending: bool
    http_status: int
    replayed: bool
    error: str = ""


def decide_and_carry(*, order: Decision, store: RuntimeStateStore) -> Answer:
    """Record a decision and carry it through: the one function of all doors (C2-C4, C13).

    Unavailable, nothing written, where migration 0066 or 0068 or the store's capability is missing.
    Other errors: see `decisions.decide`.
    """
    protocol.require(store, protocol.REQUEUE_APPROVED)
    decided = decide_surely(order=order)
    carried = _carry(approval_id=order.approval_id, store=store)
    return Answer(
        approval=decided.approval,
        continuation_pending=carried.state != CARRIED,
        http_status=503 if carried.state == OWED else 200,
        replayed=decided.replayed,
        error=carried.error,
    )


def carry_through(*, approval_id: str, store: RuntimeStateStore) -> Carried:
    """Carry one recorded decision through, or find that it was (C4-C8).

    A step that fails is recorded on the row (attempts, error, next attempt) and answered as `owed`,
    never raised. A decision from before continuations owes nothing and admits nothing (C8).
    NotFound, and Unavailable without migration 0066, before any step.
    """
    schema.require(schema.CONTINUATIONS)
    schema.require(schema.AGENT_JOBS)
    if not _exists(approval_id=approval_id):
        return Carried(CARRIED)
    return _carry(approval_id=approval_id, store=store)


def continuation_page(*, store: RuntimeStateStore) -> Callable[..., PageReport]:
    """A page of the continuation pass: owed rows by approval id, wrapping at the end (C7).

    Each due row is claimed by compare-and-set before it is worked on, so two maintenance processes
    do not do the same; one that fails or is in flight gets a later time and never blocks others.
    """

    def page(*, cursor: str | None = None, limit: int) -> PageReport:
        try:
            schema.require(schema.CONTINUATIONS)
            schema.require(schema.AGENT_JOBS)
        except Unavailable:
            return PageReport()  # no decision can be recorded either
        rows, now = _owed(after=cursor or "", limit=limit)
        states = [_turn(row, store, now=now) for row in rows]
        done, failed = states.count(CARRIED), states.count(OWED)
        return PageReport(
            scanned=len(rows),
            settled=done,
            deferred=len(rows) - done - failed,
            failed=failed,
            cursor=rows[-1].approval_id if len(rows) == limit else None,
        )

    return page


@transaction
def retry_now(*, approval_id: str, actor: audit.Actor) -> Continuation:
    """An operator wants the next attempt at once; audited (C7). Returns the row.

    NotFound; Conflict `carried_through` when nothing is owed any more.
    """
    row = Continuation.objects.select_for_update().filter(approval_id=approval_id).first()
    if row is None:
        raise NotFound(f"no continuation of {approval_id}")
    if row.state != Owed.OWED:
        raise Conflict("This decision is carried through already.", code=CARRIED)
    now = clock.db_now()
    Continuation.objects.filter(approval_id=approval_id, state=Owed.OWED).update(
        next_attempt_at=now, updated_at=now
    )
    audit.append_in_tx(
        actor=actor,
        action="approval.retry",
        kind=KIND,
        object_id=approval_id,
        before={"attempts": row.attempts, "error": row.error_text},
        after={"next_attempt_at": now.isoformat()},
    )
    return Continuation.objects.get(approval_id=approval_id)


def _turn(row: Continuation, store: RuntimeStateStore, *, now: datetime) -> str:
    """One row of a page: '' when it is not due or another process has it."""
    if row.next_attempt_at > now or not _claim(
        approval_id=row.approval_id, seen_at=row.next_attempt_at
    ):
        return ""
    return _carry(approval_id=row.approval_id, store=store).state


def _carry(*, approval_id: str, store: RuntimeStateStore) -> Carried:
    try:
        owed = _observe(approval_id=approval_id)
        if owed is None:
            return Carried(CARRIED)
        admission = _admit_or_refuse(owed, store)
        if admission == Admission.IN_FLIGHT:
            _postpone(approval_id=approval_id)
            return Carried(IN_FLIGHT, admission, owed.attempts)
        _finish(approval_id=approval_id)
        return Carried(CARRIED, admission, owed.attempts)
    except Exception as error:
        log.warning("continuation of %s: %s", approval_id, type(error).__name__)
        return _failed(approval_id, error)


def _admit_or_refuse(owed: Continuation, store: RuntimeStateStore) -> str:
    if not owed.job_id:
        return ""  # a direct invocation: its agent goes on by itself (C9)
    if owed.decision == APPROVED:
        protocol.require(store, protocol.REQUEUE_APPROVED)
        return store.requeue_approved_job_once(
            job_id=owed.job_id,
            marker=continuation_id_of(approval_id=owed.approval_id, decision_id=owed.decision_id),
            may_admit=partial(_may_admit, approval_id=owed.approval_id, job_id=owed.job_id),
        )
    code = REFUSED_CODES[owed.decision]
    reason = _why(approval_id=owed.approval_id)
    also = partial(_void, job_id=owed.job_id, code=code, reason=reason)
    if store.refuse(job_id=owed.job_id, code=code, reason=reason, also=also):
        return Admission.REFUSED
    if store.get(job_id=owed.job_id).state in NOT_ENDED:
        return Admission.IN_FLIGHT
    return Admission.NOT_WAITING


@reading
def _may_admit(*, approval_id: str, job_id: str) -> str:
    """Asked inside the store's critical section: 'yes', 'wait', or why not, for good (C5, C8)."""
    found = sql.values(Approval, ("id", "state"), {"job_id": job_id})
    states = {one[0]: one[1] for one in found}
    mine = states.pop(approval_id, "missing")
    if mine != ApprovalState.APPROVED:
        return mine
    for state in (ApprovalState.DENIED, ApprovalState.EXPIRED):
        if state in states.values():
            return f"sibling {state}"
    return "wait" if ApprovalState.OPEN in states.values() else "yes"


@requires_transaction
def _void(*, job_id: str, code: str, reason: str) -> None:
    """One refusal voids the job's other questions, unused grants and unsent calls (C8)."""
    void_in_tx(job_id=job_id, actor=CARRIER, reason=reason)
    now = clock.db_now()
    ToolCall.objects.filter(job_id=job_id, state=CallState.PROPOSED).update(
        state=CallState.FAILED, error_code=code, finished_at=now, updated_at=now
    )


@reading
def _why(*, approval_id: str) -> str:
    """Why the job is refused; names the final state, for people and for the model."""
    row = Approval.objects.get(id=approval_id)
    if row.decision == EXPIRED:
        return f"Nobody decided about {row.tool} by {row.expires_at.isoformat()}: it expired."
    text = f"{row.decided_by_kind} {row.decided_by_id} denied {row.tool}."
    return f"{text} {row.reason}".strip()


@reading
def _exists(*, approval_id: str) -> bool:
    """Whether the approval has a continuation. NotFound without approval."""
    if Continuation.objects.filter(approval_id=approval_id).exists():
        return True
    if not Approval.objects.filter(id=approval_id).exists():
        raise NotFound(f"no approval {approval_id}")
    return False


@reading
def _owed(*, after: str, limit: int) -> tuple[list[Continuation], datetime]:
    """Owed rows after an approval id, and the database's time when they were read."""
    rows = Continuation.objects.filter(state=Owed.OWED, approval_id__gt=after)
    return list(rows.order_by("approval_id")[:limit]), clock.db_now()


@transaction
def _claim(*, approval_id: str, seen_at: datetime) -> bool:
    """Take one due row for this attempt. Should this process die, it is due again later.

    One that somebody has locked is being worked on, or is for a later page.
    """
    if not sql.rows(Continuation, {"approval_id": approval_id}, lock=sql.SKIP):
        return False
    now = clock.db_now()
    due = Continuation.objects.filter(
        approval_id=approval_id, state=Owed.OWED, next_attempt_at=seen_at
    )
    later = now + timedelta(seconds=conf.continuation_interval_seconds)
    return due.update(next_attempt_at=later, updated_at=now) == 1


@transaction
def _observe(*, approval_id: str) -> Continuation | None:
    """Append `carried_through` once (C4, C10). Returns what is owed, None when nothing is.

    KernelError `continuation_damaged` when the row does not fit its approval: nothing is admitted
    on coordinates that somebody changed.
    """
    found = sql.rows(Continuation, {"approval_id": approval_id}, lock=sql.WAIT)
    if not found or found[0].state != Owed.OWED:
        return None
    (row,) = found
    _check_coordinates(row)
    acts = {"subject": f"{KIND}:{approval_id}", "action": CARRIED_ACTION}
    if not sql.values(AuditRow, ("sequence",), acts, more="LIMIT 1"):
        marker = continuation_id_of(approval_id=approval_id, decision_id=row.decision_id)
        audit.append_in_tx(
            actor=CARRIER,
            action=CARRIED_ACTION,
            kind=KIND,
            object_id=approval_id,
            after={"detail": {"continuation_id": marker}},
        )
    return row


def _check_coordinates(row: Continuation) -> None:
    names = ("job_id", "request_id", "arguments_sha256", "decision_id", "decision")
    found = sql.values(Approval, names, {"id": row.approval_id})
    there = found[0] if found else [None] * len(names)
    wrong = [name for name, value in zip(names, there, strict=True) if value != getattr(row, name)]
    if wrong:
        raise KernelError(
            f"the continuation does not fit its approval: {', '.join(wrong)}",
            code="continuation_damaged",
        )


@transaction
def _postpone(*, approval_id: str) -> None:
    now = clock.db_now()
    Continuation.objects.filter(approval_id=approval_id, state=Owed.OWED).update(
        next_attempt_at=now + timedelta(seconds=conf.continuation_interval_seconds),
        error_text="",
        updated_at=now,
    )


@transaction
def _finish(*, approval_id: str) -> None:
    now = clock.db_now()
    sql.update_where_in_tx(
        Continuation,
        {"state": Owed.DONE, "finished_at": now, "error_text": "", "updated_at": now},
        "approval_id = %s AND state = %s",
        [approval_id, Owed.OWED],
    )


def _failed(approval_id: str, error: Exception) -> Carried:
    text = clean(f"{type(error).__name__}: {error}", limit=ERROR_CHARS_MAX)
    try:
        row = _record_failure(approval_id=approval_id, error_text=text)
    except Exception as second:
        # The row stays owed and due; the next pass finds it.
        log.warning("failure of %s not recorded: %s", approval_id, type(second).__name__)
        return Carried(OWED, error=text)
    if row.state == Owed.DONE:  # only the acknowledgement was lost, or another one finished it
        return Carried(CARRIED, attempts=row.attempts)
    return Carried(OWED, attempts=row.attempts, error=text)


@transaction
def _record_failure(*, approval_id: str, error_text: str) -> Continuation:
    row = Continuation.objects.select_for_update().get(approval_id=approval_id)
    now = clock.db_now()
    wait_seconds = min(
        conf.continuation_retry_first_seconds * 2 ** min(row.attempts, DOUBLINGS_MAX),
        conf.continuation_retry_max_seconds,
    )
    Continuation.objects.filter(approval_id=approval_id, state=Owed.OWED).update(
        attempts=row.attempts + 1,
        next_attempt_at=now + timedelta(seconds=wait_seconds),
        error_text=error_text,
        updated_at=now,
    )
    return Continuation.objects.get(approval_id=approval_id)
