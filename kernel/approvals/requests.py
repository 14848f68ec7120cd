"""Questions to a person: opened, voided, replaced; the grant used once (C1, C8, C11, C12).

Everything here joins its caller's transaction. Where a job is concerned, the caller holds the lock
of its row: job first, approvals second, never the other way round.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kernel import audit, clock, outbox, sql
from kernel.approvals.arguments import Canonical
from kernel.approvals.notices import opened
from kernel.conf import conf
from kernel.errors import Conflict, LostRace, NotFound
from kernel.ids import new_id
from kernel.models import Approval
from kernel.sql import insert_new_row_in_tx
from kernel.states import APPROVAL, ApprovalState
from kernel.transactions import requires_transaction

KIND = "approval"  # the kind of the audit rows
AGENT = audit.Actor("system", "agent")


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked: may this tool run with exactly these arguments (C1)?

    `effect` is one sentence about what would happen. The question stays open, and a grant usable,
    for `expires_in_seconds`. `supersedes_id` names the question that this one replaces.
    """

    tool: str
    tool_version: int
    canonical: Canonical
    risk: str
    effect: str
    tool_call_id: str
    expires_in_seconds: float
    supersedes_id: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """A used approval: what may be executed, from this very text, once (C1, C12)."""

    approval_id: str
    decision_id: str
    tool: str
    tool_version: int
    arguments_text: str
    arguments_sha256: str
    expires_at: datetime


@requires_transaction
def open_in_tx(
    *,
    questions: Sequence[Question],
    account_id: str,
    request_id: str,
    requested_by: str,
    job_id: str = "",
    invocation_id: str = "",
    actor: audit.Actor = AGENT,
) -> list[Approval]:
    """Open the questions of one step, all or none; audited as `approval.opened` (C1).

    `requested_by` is `<kind>:<id>` of who submitted the job or invocation; that one cannot decide
    (C11). Conflict `too_many_questions` when the job would ask more than `job_approvals_count_max`.
    """
    if job_id:
        _check_job_bound(job_id, adding=len(questions))
    now = clock.db_now()
    rows = []
    for question in questions:
        row = Approval(
            id=new_id("apr"),
            account_id=account_id,
            job_id=job_id,
            invocation_id=invocation_id,
            request_id=request_id,
            tool=question.tool,
            tool_version=question.tool_version,
            arguments_text=question.canonical.text,
            canonical_version=question.canonical.version,
            arguments_sha256=question.canonical.sha256,
            risk=question.risk,
            effect=question.effect,
            requested_by=requested_by,
            state=ApprovalState.OPEN,
            created_at=now,
            expires_at=now + timedelta(seconds=question.expires_in_seconds),
            tool_call_id=question.tool_call_id,
            supersedes_id=question.supersedes_id,
            updated_at=now,
        )
        insert_new_row_in_tx(row)
        _audit_opened(row, actor)
        rows.append(row)
    outbox.publish_all_in_tx(events=[opened(row) for row in rows])
    return rows


def _audit_opened(row: Approval, actor: audit.Actor) -> None:
    audit.append_in_tx(
        actor=actor,
        action="approval.opened",
        kind=KIND,
        object_id=row.id,
        after={
            "state": row.state,
            "job_id": row.job_id,
            "invocation_id": row.invocation_id,
            "request_id": row.request_id,
            "requested_by": row.requested_by,
            "tool": row.tool,
            "tool_version": row.tool_version,
            "arguments_sha256": row.arguments_sha256,
            "risk": row.risk,
            "expires_at": row.expires_at.isoformat(),
            "supersedes_id": row.supersedes_id,
        },
    )


@requires_transaction
def void_in_tx(*, job_id: str, actor: audit.Actor, reason: str) -> int:
    """Cancel the job's open questions and unused grants; returns how many there were (C8)."""
    rows = Approval.objects.select_for_update().filter(
        job_id=job_id, state__in=APPROVAL.moves_to(ApprovalState.CANCELLED, by="void")
    )
    found = list(rows.order_by("id"))
    for row in found:
        _cancel(row, actor=actor, reason=reason)
    return len(found)


@requires_transaction
def cancel_in_tx(*, approval_id: str, actor: audit.Actor, reason: str) -> bool:
    """Cancel one open question or unused grant: its call is not made. False when it is neither."""
    row = _locked_in_tx(approval_id)
    if row.state not in APPROVAL.moves_to(ApprovalState.CANCELLED, by="void"):
        return False
    _cancel(row, actor=actor, reason=reason)
    return True


@requires_transaction
def replace_in_tx(
    *, approval_id: str, question: Question, reason: str, actor: audit.Actor = AGENT
) -> Approval:
    """Cancel a question or its unused grant and ask anew about the same call (C1). Returns the new.

    For drift: another tool version, a stricter policy. Conflict `too_many_questions` when this call
    was asked about `approval_asks_count_max` times, or its job too often; `not_replaceable` when
    the old one is denied, expired, cancelled or used. NotFound.
    """
    old = _locked_in_tx(approval_id)
    if old.state not in APPROVAL.moves_to(ApprovalState.CANCELLED, by="void"):
        raise _conflict(old, "not_replaceable")
    if _asks(old) >= conf.approval_asks_count_max:
        raise _too_many(f"This call was asked about {conf.approval_asks_count_max} times.")
    _cancel(old, actor=actor, reason=reason)
    (new,) = open_in_tx(
        questions=[replace(question, supersedes_id=old.id)],
        account_id=old.account_id,
        job_id=old.job_id,
        invocation_id=old.invocation_id,
        request_id=old.request_id,
        requested_by=old.requested_by,
        actor=actor,
    )
    return new


@requires_transaction
def consume_in_tx(
    *, approval_id: str, sha256: str, tool_version: int, actor: audit.Actor = AGENT
) -> Grant:
    """Use a grant for the call that is dispatched in this very transaction (C12).

    Conflict `not_approved` (the details name the state), `expired` by the database's clock, or
    `changed` when the call is not the approved one, byte for byte. NotFound. Nothing is written
    before a Conflict is raised, so the caller may go on in its transaction.
    """
    row = _locked_in_tx(approval_id)
    if row.state != ApprovalState.APPROVED:
        raise _conflict(row, "expired" if row.state == ApprovalState.EXPIRED else "not_approved")
    now = clock.db_now()
    if row.expires_at <= now:
        raise _conflict(row, "expired")
    stored = hashlib.sha256(row.arguments_text.encode()).hexdigest()
    if not row.arguments_sha256 == sha256 == stored or row.tool_version != tool_version:
        raise _conflict(row, "changed")
    _move(row, ApprovalState.CONSUMED, by="begin_call", at=now, consumed_at=now)
    _audit_move(row, "approval.consumed", ApprovalState.CONSUMED, actor)
    return Grant(
        row.id,
        row.decision_id or "",
        row.tool,
        row.tool_version,
        row.arguments_text,
        row.arguments_sha256,
        row.expires_at,
    )


@requires_transaction
def give_back_in_tx(*, approval_id: str, actor: audit.Actor = AGENT) -> None:
    """The call provably sent nothing: its grant is usable again, until it expires (C12).

    Conflict `not_consumed`, NotFound.
    """
    row = _locked_in_tx(approval_id)
    if row.state != ApprovalState.CONSUMED:
        raise _conflict(row, "not_consumed")
    _move(row, ApprovalState.APPROVED, by="give_back_call", at=clock.db_now(), consumed_at=None)
    _audit_move(row, "approval.given_back", ApprovalState.APPROVED, actor)


@requires_transaction
def expire_grant_in_tx(*, approval_id: str, actor: audit.Actor = AGENT) -> None:
    """A grant that nobody used in time, found at the call's dispatch: approved -> expired (C11).

    The decision stays as it was recorded; an expired one stays as it is. Conflict `not_approved`
    when it is no unused grant or its time is not over. NotFound.
    """
    row = _locked_in_tx(approval_id)
    if row.state == ApprovalState.EXPIRED:
        return
    now = clock.db_now()
    if row.state != ApprovalState.APPROVED or row.expires_at > now:
        raise _conflict(row, "not_approved")
    _move(row, ApprovalState.EXPIRED, by="begin_call", at=now)
    _audit_move(row, "approval.expired", ApprovalState.EXPIRED, actor, reason="used too late")


@requires_transaction
def _locked_in_tx(approval_id: str) -> Approval:
    found = sql.rows(Approval, {"id": approval_id}, lock=sql.WAIT)
    if not found:
        raise NotFound(f"no approval {approval_id}")
    return found[0]


def _cancel(row: Approval, *, actor: audit.Actor, reason: str) -> None:
    _move(row, ApprovalState.CANCELLED, by="void", at=clock.db_now())
    # One form may void many: its key belongs to the act itself, not to each of these.
    voider = replace(actor, act_key="")
    _audit_move(row, "approval.cancelled", ApprovalState.CANCELLED, voider, reason=reason)


def _move(row: Approval, state: str, *, by: str, at: datetime, **values: datetime | None) -> None:
    if row.state not in APPROVAL.moves_to(state, by=by):
        raise LostRace(f"approval {row.id} is {row.state} now")
    changes = {"state": state, "updated_at": at, **values}
    moved = sql.update_where_in_tx(Approval, changes, "id = %s AND state = %s", [row.id, row.state])
    if moved != 1:
        raise LostRace(f"approval {row.id} changed meanwhile")


def _audit_move(
    row: Approval, action: str, state: str, actor: audit.Actor, *, reason: str = ""
) -> None:
    audit.append_in_tx(
        actor=actor,
        action=action,
        kind=KIND,
        object_id=row.id,
        before={"state": row.state},
        after={"state": state},
        reason=reason,
    )


def _check_job_bound(job_id: str, *, adding: int) -> None:
    if Approval.objects.filter(job_id=job_id).count() + adding > conf.job_approvals_count_max:
        raise _too_many(f"The job would ask more than {conf.job_approvals_count_max} questions.")


def _asks(row: Approval) -> int:
    """How often this call was asked about: the row and those before it, bounded."""
    count, before = 1, row.supersedes_id
    while before and count < conf.approval_asks_count_max:
        count += 1
        before = Approval.objects.values_list("supersedes_id", flat=True).get(id=before)
    return count


def _too_many(message: str) -> Conflict:
    return Conflict(
        message,
        code="too_many_questions",
        next_action="Look at the job: its tool or policy keeps changing, or it asks in circles.",
    )


def _conflict(row: Approval, code: str) -> Conflict:
    return Conflict(
        f"Approval {row.id} is {row.state}; it does not allow this.",
        code=code,
        next_action="Read the approval again.",
        state=row.state,
        expires_at=row.expires_at.isoformat(),
    )
