"""Decisions: one transaction for every path - decision, continuation and audit row (C2, C3, C11).

Console, callback, API, bulk and expiry all end here. `decision_id` is the idempotency key: the
same call again finds the saved decision, also after a lost acknowledgement.
"""

import logging
import random
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError
from django.db.models import Q

from kernel import audit, clock, outbox, schema, sql
from kernel.approvals.notices import decided as decided_notice
from kernel.approvals.requests import KIND
from kernel.audit.trail import REASON_CHARS_MAX
from kernel.errors import (
    CommitOutcomeUnknown,
    Conflict,
    Forbidden,
    InvalidId,
    InvalidInput,
    LostRace,
    NotFound,
    RetryTransaction,
    Unavailable,
)
from kernel.ids import check_id
from kernel.models import Approval, Continuation, Token
from kernel.runtime.maintenance import PageReport
from kernel.sql import insert_new_row_in_tx
from kernel.states import APPROVAL, ApprovalState, Owed
from kernel.transactions import (
    LockWaits,
    concerns_all,
    reading,
    requires_transaction,
    short_lock_waits,
    transaction,
)

log = logging.getLogger(__name__)

APPROVED, DENIED, EXPIRED = "approved", "denied", "expired"
WORDS = (APPROVED, DENIED)
STATE_OF = {
    APPROVED: ApprovalState.APPROVED,
    DENIED: ApprovalState.DENIED,
    EXPIRED: ApprovalState.EXPIRED,
}
DECIDERS = ("user", "token", "signature", "policy")
TIMEOUT = audit.Actor("timeout", "expiry")
TIMEOUT_PREFIX = "timeout:"  # decision ids of expiry; nobody else may use them
HIGH = "high"


class InvalidDecision(InvalidInput):
    """Not one of the accepted words, exactly as they are written."""

    code, status = "invalid_decision", 400


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision as it was sent. `decision_id` is the caller's key for it (C3).

    `seen_sha256` is the digest that the form showed ('' = none was shown). With `account_id`, an
    approval of another account does not exist for this caller. The actor's `act_key` is not used.
    """

    approval_id: str
    decision: str
    decision_id: str
    reason: str
    actor: audit.Actor
    seen_sha256: str = ""
    account_id: str = ""


@dataclass(frozen=True, slots=True)
class Decided:
    """The approval as it is recorded; `replayed` when this decision had been recorded before."""

    approval: Approval
    replayed: bool


def continuation_id_of(*, approval_id: str, decision_id: str) -> str:
    """The name of one decision's continuation: the marker on the job, the detail in the audit."""
    return f"{approval_id}.{decision_id}"


def decide(*, order: Decision) -> Decided:
    """Record one decision, its continuation and its audit row, all or none (C2). Replays (C3).

    InvalidDecision, InvalidId (`decision_id`), InvalidInput (`reason`: too long, or missing where
    risk high is denied), NotFound, Forbidden `four_eyes` (the requester) or `not_a_decider`;
    Conflict `already_decided` or `decision_id_conflict` (the details say who, what and when),
    `expired` (its time is over by the database's clock: recorded now), `cancelled`, `changed` (the
    form showed other arguments). Unavailable before anything is written while migration 0066 or
    0068 is absent. CommitOutcomeUnknown: repeat the same call.
    """
    schema.require(schema.CONTINUATIONS)
    schema.require(schema.AGENT_JOBS)
    _check(order)
    decided = _decide(order=order)
    if decided.approval.decision != order.decision:  # it came too late and expired just now
        raise _closed(decided.approval)
    return decided


def decide_surely(*, order: Decision) -> Decided:
    """`decide`; when the commit was not acknowledged, asks once more under the same decision_id.

    The second call waits for the first one's lock, finds its decision if it landed, and makes it if
    it did not. CommitOutcomeUnknown when that is not acknowledged either.
    """
    try:
        return decide(order=order)
    except CommitOutcomeUnknown:
        log.warning("a decision's commit was not acknowledged; asking again by its id")
    try:
        return decide(order=order)
    except CommitOutcomeUnknown as error:
        raise CommitOutcomeUnknown(
            "The database did not acknowledge the decision; it may be recorded or not.",
            next_action="Retry the same decision_id; do not create another approval.",
        ) from error


@transaction
def _decide(*, order: Decision) -> Decided:
    row = _locked_in_tx(order.approval_id, account_id=order.account_id)
    if in_the_same_hands(row.requested_by, f"{order.actor.kind}:{order.actor.id}"):
        raise Forbidden(
            "Who asked for this call cannot decide about it, nor through a token they issued.",
            code="four_eyes",
            next_action="Ask another approver.",
        )
    if row.decision_id == order.decision_id:
        if row.decision != order.decision:
            raise _conflict(row, "decision_id_conflict")
        return Decided(row, replayed=True)
    if row.state != ApprovalState.OPEN:
        raise _closed(row)
    if sql.values(Approval, ("id",), {"decision_id": order.decision_id}):
        raise Conflict(
            f"The decision id {order.decision_id} belongs to another approval.",
            code="decision_id_conflict",
            next_action="Send a new decision_id for this approval.",
        )
    if order.seen_sha256 and order.seen_sha256 != row.arguments_sha256:
        raise _conflict(row, "changed")
    now = clock.db_now()
    if row.expires_at <= now:
        return Decided(_expired_in_tx(row, now=now), replayed=False)
    if order.decision == DENIED and row.risk == HIGH and not order.reason.strip():
        raise InvalidInput("say why: denying a high risk needs a reason", field="reason")
    return Decided(_recorded_in_tx(row, order, now=now), replayed=False)


def expire_page(*, cursor: tuple[datetime, str] | None = None, limit: int) -> PageReport:
    """Expire open questions whose time is over by the database's clock, oldest first (C11).

    Each in its own transaction: one that fails is counted, one that somebody has locked is left for
    a later pass, and neither keeps others waiting. Empty
    while migration 0066 or 0068 is absent: nothing can be decided then.
    """
    try:
        schema.require(schema.CONTINUATIONS)
        schema.require(schema.AGENT_JOBS)
    except Unavailable:
        return PageReport()
    late = _late(after=cursor, limit=limit)
    moved = failed = 0
    waits = LockWaits()
    with short_lock_waits():
        # In any order: the same locked ones must not always come first.
        for _, approval_id in random.sample(late, len(late)):
            if waits.are_enough:
                break
            try:
                moved += expire(approval_id=approval_id)
            except Exception as error:
                if waits.bears(error):
                    continue
                if concerns_all(error):
                    raise
                failed += 1
                log.warning("approval %s cannot expire: %s", approval_id, type(error).__name__)
    waits.end(done=moved)
    return PageReport(
        scanned=len(late),
        settled=moved,
        deferred=len(late) - moved - failed,
        failed=failed,
        cursor=late[-1] if len(late) == limit else None,
    )


@transaction
def expire(*, approval_id: str) -> bool:
    """Expire one question if it is still open and late. False when somebody decided meanwhile.

    False, too, while somebody has it locked: a later pass finds it.
    """
    found = sql.rows(Approval, {"id": approval_id}, lock=sql.SKIP)
    if not found:
        return False
    row, now = found[0], clock.db_now()
    if row.state != ApprovalState.OPEN or row.expires_at > now:
        return False
    _expired_in_tx(row, now=now)
    return True


@reading
def _late(*, after: tuple[datetime, str] | None, limit: int) -> list[tuple[datetime, str]]:
    rows = Approval.objects.filter(state=ApprovalState.OPEN, expires_at__lte=clock.db_now())
    if after is not None:
        at, approval_id = after
        rows = rows.filter(expires_at__gte=at)
        rows = rows.filter(Q(expires_at__gt=at) | Q(id__gt=approval_id))
    return list(rows.order_by("expires_at", "id").values_list("expires_at", "id")[:limit])


def _check(order: Decision) -> None:
    if not isinstance(order.decision, str) or order.decision not in WORDS:
        raise InvalidDecision(
            "decision must be approved or denied, exactly so",
            field="decision",
            next_action='Send "approved" or "denied".',
            accepted=list(WORDS),
        )
    check_id(order.decision_id, field="decision_id")
    if order.decision_id.startswith(TIMEOUT_PREFIX):
        raise InvalidId(f"{TIMEOUT_PREFIX} is a reserved prefix", field="decision_id")
    if order.actor.kind not in DECIDERS or not order.actor.id:
        raise Forbidden("Nobody of this kind decides.", code="not_a_decider")
    reason = order.reason
    if not isinstance(reason, str) or len(reason) > REASON_CHARS_MAX or not _is_storable(reason):
        raise InvalidInput(
            f"reason must be text of at most {REASON_CHARS_MAX} characters", field="reason"
        )


def in_the_same_hands(asker: str, decider: str) -> bool:
    """Whether two `<kind>:<id>` are one, or a person and a token that they issued (C11).

    Who issues a token sees its secret. Two tokens are two, whoever issued them; what a command or
    a start issued is in no person's hands that we know.
    """
    return asker == decider or asker == _issuer_of(decider) or decider == _issuer_of(asker)


def _issuer_of(name: str) -> str:
    kind, _, name_id = name.partition(":")
    if kind != "token":
        return ""
    return next((name for (name,) in sql.values(Token, ("created_by",), {"id": name_id})), "")


def _is_storable(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


@requires_transaction
def _locked_in_tx(approval_id: str, *, account_id: str = "") -> Approval:
    found = sql.rows(Approval, {"id": approval_id}, lock=sql.WAIT)
    if not found or (account_id and found[0].account_id != account_id):
        raise NotFound(f"no approval {approval_id}")
    return found[0]


@requires_transaction
def _expired_in_tx(row: Approval, *, now: datetime) -> Approval:
    order = Decision(row.id, EXPIRED, f"{TIMEOUT_PREFIX}{row.id}", "", TIMEOUT)
    return _recorded_in_tx(row, order, now=now)


@requires_transaction
def _recorded_in_tx(row: Approval, order: Decision, *, now: datetime) -> Approval:
    """The three writes of a decision. Returns the row as it is now."""
    state, before = STATE_OF[order.decision], {"state": row.state}
    assert row.state in APPROVAL.moves_to(state, by="decide"), "the caller looked"
    recorded = {
        "state": state,
        "decision": order.decision,
        "decision_id": order.decision_id,
        "decided_by_kind": order.actor.kind,
        "decided_by_id": order.actor.id,
        "reason": order.reason,
        "decided_at": now,
        "updated_at": now,
    }
    try:
        moved = sql.update_where_in_tx(
            Approval, recorded, "id = %s AND state = %s", [row.id, ApprovalState.OPEN]
        )
    except IntegrityError as error:
        # Another approval took this decision_id meanwhile: run again and see it.
        raise RetryTransaction("a decision id met another") from error
    if moved != 1:
        raise LostRace(f"approval {row.id} changed meanwhile")
    for name, value in recorded.items():  # the row is locked: it is now what was written
        setattr(row, name, value)
    insert_new_row_in_tx(
        Continuation(
            approval_id=row.id,
            job_id=row.job_id,
            request_id=row.request_id,
            arguments_sha256=row.arguments_sha256,
            decision_id=order.decision_id,
            decision=order.decision,
            state=Owed.OWED,
            next_attempt_at=now,
            created_at=now,
            updated_at=now,
        )
    )
    audit.append_in_tx(
        # Not the act_key: the decision_id makes this act happen once.
        actor=replace(order.actor, act_key=""),
        action="approval.decided",
        kind=KIND,
        object_id=row.id,
        before=before,
        after={
            "state": state,
            "decision": order.decision,
            "decision_id": order.decision_id,
            "job_id": row.job_id,
            "invocation_id": row.invocation_id,
            "request_id": row.request_id,
            "tool": row.tool,
            "tool_version": row.tool_version,
            "arguments_sha256": row.arguments_sha256,
        },
        reason=order.reason,
        at=now,
    )
    outbox.publish_all_in_tx(events=[decided_notice(row)])
    return row


def _closed(row: Approval) -> Conflict:
    codes = {ApprovalState.EXPIRED: "expired", ApprovalState.CANCELLED: "cancelled"}
    return _conflict(row, codes.get(row.state, "already_decided"))


def _conflict(row: Approval, code: str) -> Conflict:
    ways_out = {
        "changed": "Open the approval again and read what it asks now.",
        "decision_id_conflict": "Send a new decision_id for another decision.",
    }
    details: dict[str, Any] = {"state": row.state}
    if row.decided_at is not None:
        details |= {
            "by": row.decided_by_id,
            "by_kind": row.decided_by_kind,
            "decision": row.decision,
            "decided_at": row.decided_at.isoformat(),
            "reason": row.reason,
        }
    return Conflict(
        _sentence(row, code),
        code=code,
        next_action=ways_out.get(code, "Nothing to decide any more: read the approval."),
        **details,
    )


def _sentence(row: Approval, code: str) -> str:
    if code == "changed":
        return "The form showed other arguments than this approval asks about."
    if row.decided_at is None:
        return f"The approval is {row.state}."
    by = f"{row.decided_by_kind} {row.decided_by_id}"
    text = f"It was {row.decision} by {by} at {row.decided_at.isoformat()}."
    return text if row.state == row.decision else f"{text} It is {row.state} now."
