"""An operator resolves what the machine cannot know: unknown outcomes, pending charges (A9, A11b).

Each act names its evidence and a note, is audited, settles at most once and releases the hold.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kernel import audit, clock
from kernel.errors import InvalidInput, LostRace, NotFound
from kernel.models import Request
from kernel.states import Billing, Result
from kernel.transactions import requires_transaction, transaction
from kernel.usage import pricing
from kernel.usage.dispatch import release_holds_in_tx
from kernel.usage.metering import Metering, read_usage
from kernel.usage.notices import tell_unpriced_in_tx
from kernel.usage.settlement import (
    CORRUPT,
    UNREADABLE,
    Owing,
    charge_for,
    post_charges_in_tx,
)

NOTE_CHARS_MIN, NOTE_CHARS_MAX = 3, 4000


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the operator found. `usage`: a usage object as the provider reports it."""

    executed: bool
    provider_request_id: str = ""
    usage: Mapping[str, Any] | None = None


@transaction
def resolve_unknown(
    *, request_id: str, evidence: Evidence, note: str, actor: audit.Actor, seen_updated_at: datetime
) -> Request:
    """End an unknown request by evidence (A9). Returns the row as it is now.

    Not executed: failed, nothing charged, hold released. Executed: failed (its bytes are lost),
    charged from the metering given, else from the one saved; without any it stays pending. LostRace
    when it is not unknown any more or changed since `seen_updated_at`; InvalidInput names what is
    missing.
    """
    row = _locked(request_id, note)
    if row.result_state != Result.UNKNOWN or row.updated_at != seen_updated_at:
        raise _lost(row)
    usage_text = _metering(row, evidence)
    code = "resolved_executed" if evidence.executed else "resolved_not_executed"
    billing = Billing.PENDING if evidence.executed else Billing.NOT_CHARGED
    now = clock.db_now()
    if row.billing_state == Billing.SETTLED:
        billing = Billing.SETTLED
    moved = Request.objects.filter(id=row.id, result_state=Result.UNKNOWN).update(
        result_state=Result.FAILED,
        billing_state=billing,
        pending_reason=_reason_after(billing, usage_text),
        usage_text=usage_text,
        provider_request_id=evidence.provider_request_id[:200] or row.provider_request_id,
        error_code=code,
        resolved_at=row.resolved_at or now,
        updated_at=now,
    )
    if moved != 1:
        raise _lost(row)
    if billing == Billing.NOT_CHARGED:
        release_holds_in_tx(requests=[row])
    _audit(row, "request.resolve_unknown", evidence=evidence, note=note, actor=actor)
    return _settled_if_possible(row, billing, now)


@transaction
def resolve_pending(
    *, request_id: str, evidence: Evidence, note: str, actor: audit.Actor, seen_updated_at: datetime
) -> Request:
    """Give a pending request its metering by evidence and settle it once (A11b). Returns the row.

    InvalidInput when the metering is missing or cannot be read; LostRace when it is not pending any
    more. A request that still has no price stays pending(unpriced).
    """
    row = _locked(request_id, note)
    if row.billing_state != Billing.PENDING or row.updated_at != seen_updated_at:
        raise _lost(row)
    if row.result_state in (Result.UNKNOWN, Result.DISPATCHED):
        raise InvalidInput(
            "the outcome of this request is not known yet; resolve the outcome first",
            field="request_id",
        )
    if not evidence.executed:
        raise InvalidInput(
            "the provider answered this request; write the charge off instead", field="executed"
        )
    if evidence.usage is None:
        raise InvalidInput("give the metering, or write the charge off", field="usage")
    usage_text = _metering(row, evidence)
    now = clock.db_now()
    moved = Request.objects.filter(id=row.id, billing_state=Billing.PENDING).update(
        usage_text=usage_text,
        pending_reason="",
        provider_request_id=evidence.provider_request_id[:200] or row.provider_request_id,
        resolved_at=row.resolved_at or now,
        updated_at=now,
    )
    if moved != 1:
        raise _lost(row)
    _audit(row, "request.resolve_pending", evidence=evidence, note=note, actor=actor)
    return _settled_if_possible(row, Billing.PENDING, now)


@transaction
def write_off(
    *, request_id: str, note: str, actor: audit.Actor, seen_updated_at: datetime
) -> Request:
    """Decide that a pending request is never charged; releases its hold (A11b). Returns the row."""
    row = _locked(request_id, note)
    if row.billing_state != Billing.PENDING or row.updated_at != seen_updated_at:
        raise _lost(row)
    if row.result_state in (Result.UNKNOWN, Result.DISPATCHED):
        raise InvalidInput(
            "the outcome of this request is not known yet; resolve the outcome first",
            field="request_id",
        )
    now = clock.db_now()
    moved = Request.objects.filter(id=row.id, billing_state=Billing.PENDING).update(
        billing_state=Billing.NOT_CHARGED,
        pending_reason="written_off",
        resolved_at=row.resolved_at or now,
        updated_at=now,
    )
    if moved != 1:
        raise _lost(row)
    release_holds_in_tx(requests=[row])
    audit.append_in_tx(
        actor=actor,
        action="request.write_off",
        kind="request",
        object_id=row.id,
        before={"billing_state": row.billing_state, "pending_reason": row.pending_reason},
        after={"billing_state": Billing.NOT_CHARGED},
        reason=note,
    )
    return Request.objects.get(id=row.id)


def _locked(request_id: str, note: str) -> Request:
    if not NOTE_CHARS_MIN <= len(note.strip()) <= NOTE_CHARS_MAX:
        raise InvalidInput("say in a few words how you know", field="note")
    row = Request.objects.select_for_update().filter(id=request_id).first()
    if row is None:
        raise NotFound(f"no request {request_id}")
    return row


def _metering(row: Request, evidence: Evidence) -> str:
    """The metering that counts after the act. What a charge was derived from never changes."""
    if evidence.usage is None or not evidence.executed or row.billing_state == Billing.SETTLED:
        return row.usage_text
    metering = read_usage(dict(evidence.usage))
    if metering.reason:
        raise InvalidInput(f"this metering cannot be used: {metering.detail}", field="usage")
    return metering.to_text()


def saved_metering_counts(row: Request) -> bool:
    """Whether the request's own saved metering can be charged, without any given by a person."""
    try:
        return bool(row.usage_text) and Metering.from_text(row.usage_text).reason is None
    except UNREADABLE:
        return False


def _reason_after(billing: str, usage_text: str) -> str:
    if billing == Billing.NOT_CHARGED:
        return "not_executed"
    return "" if usage_text or billing == Billing.SETTLED else "no_usage"


@requires_transaction
def _settle_in_tx(row: Request, now: datetime, *, reason_before: str) -> None:
    """Charge the row, or note why it still waits: told once, by whoever notes it first (A12)."""
    try:
        charge = charge_for(Owing.of(row), now=now)
    except UNREADABLE:
        charge = CORRUPT
    if not isinstance(charge, str):
        post_charges_in_tx(charges=[charge])
        return
    Request.objects.filter(id=row.id, billing_state=Billing.PENDING).update(pending_reason=charge)
    if charge in pricing.REASONS and charge != reason_before:
        tell_unpriced_in_tx([row.id], reason=charge)


def _settled_if_possible(before: Request, billing: str, now: datetime) -> Request:
    row = Request.objects.get(id=before.id)
    if billing == Billing.PENDING:
        _settle_in_tx(row, now, reason_before=before.pending_reason)
        row.refresh_from_db()
    return row


def _audit(row: Request, action: str, *, evidence: Evidence, note: str, actor: audit.Actor) -> None:
    audit.append_in_tx(
        actor=actor,
        action=action,
        kind="request",
        object_id=row.id,
        before={
            "result_state": row.result_state,
            "billing_state": row.billing_state,
            "pending_reason": row.pending_reason,
            "metering": row.usage_text,
        },
        after={
            "executed": evidence.executed,
            "provider_request_id": evidence.provider_request_id,
            "usage": json.loads(json.dumps(evidence.usage)) if evidence.usage else None,
        },
        reason=note,
    )


def _lost(row: Request) -> LostRace:
    return LostRace(
        f"request {row.id} is {row.result_state} / {row.billing_state} now",
        result_state=row.result_state,
        billing_state=row.billing_state,
        updated_at=row.updated_at.isoformat(),
    )
