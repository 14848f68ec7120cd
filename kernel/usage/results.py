"""Results: the provider's bytes, hash and metering in one transaction, under the fence (A6, A7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kernel import clock
from kernel.models import Request
from kernel.sql import update_where_in_tx
from kernel.states import RESULT, Billing, Result
from kernel.transactions import transaction
from kernel.usage.bodies import insert_bodies_in_tx
from kernel.usage.dispatch import release_holds_in_tx
from kernel.usage.notices import tell_unknown_in_tx

ERROR_TEXT_CHARS_MAX = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one provider call came to. `body` None = no byte arrived; `usage_text` '' = none."""

    request_id: str
    fence_token: str
    result_state: str
    billing_state: str
    pending_reason: str = ""
    http_status: int | None = None
    content_type: str = ""
    body: bytes | None = None
    sha256: str = ""
    provider_request_id: str = ""
    usage_text: str = ""
    error_code: str = ""
    error_text: str = ""


@dataclass(frozen=True, slots=True)
class Saved:
    """Whether the outcome took effect, and the states the request is in now."""

    applied: bool
    result_state: str
    billing_state: str


@transaction
def save_results(*, items: Sequence[Outcome]) -> list[Saved | Exception]:
    """Save outcomes by compare-and-set on state and fence; safe to repeat after a lost commit (A6).

    The holder of the original fence still moves `unknown` to `complete`, until an operator has
    resolved it. Any other late outcome changes no result; what was used is recorded.
    """
    now = clock.db_now()
    moved = [_move(item, now) for item in items]
    applied = [item for item, was_moved in zip(items, moved, strict=True) if was_moved]
    insert_bodies_in_tx(
        kind="result",
        bodies=[(item.request_id, item.body) for item in applied if item.body is not None],
    )
    saved: list[Saved | Exception] = [
        Saved(True, item.result_state, item.billing_state) if was_moved else _late(item)
        for item, was_moved in zip(items, moved, strict=True)
    ]
    unknown = [item.request_id for item in applied if item.result_state == Result.UNKNOWN]
    if unknown:
        tell_unknown_in_tx(unknown, at=now)
    free = [item.request_id for item in applied if item.billing_state == Billing.NOT_CHARGED]
    if free:
        release_holds_in_tx(requests=list(Request.objects.filter(id__in=free)))
    return saved


def _move(item: Outcome, now: datetime) -> bool:
    sources = sorted(RESULT.moves_to(item.result_state, by="save_results"))
    marks = ", ".join(["%s"] * len(sources))
    return (
        update_where_in_tx(
            Request,
            _columns(item, now),
            "id = %s AND fence_token = %s AND resolved_at IS NULL"
            f" AND billing_state <> %s AND result_state IN ({marks})",
            [item.request_id, item.fence_token, Billing.SETTLED, *sources],
        )
        == 1
    )


def _late(item: Outcome) -> Saved:
    """What the row says now, where the outcome may not move it any more (or did so already)."""
    own = Request.objects.filter(id=item.request_id, fence_token=item.fence_token)
    row = own.select_for_update().first()
    if row is None:
        return Saved(False, "", "")
    if row.result_state == item.result_state and row.result_sha256 == item.sha256:
        return Saved(True, row.result_state, row.billing_state)
    # A time of its own: what came first may have been committed while this waited for the lock.
    return Saved(False, row.result_state, _record_late_usage(row, item, clock.db_now()))


def _columns(item: Outcome, now: datetime) -> dict[str, Any]:
    return {
        "result_state": item.result_state,
        "billing_state": item.billing_state,
        "pending_reason": item.pending_reason,
        "http_status": item.http_status,
        "content_type": item.content_type[:200],
        "result_sha256": item.sha256,
        "result_bytes": None if item.body is None else len(item.body),
        "provider_request_id": item.provider_request_id[:200],
        "usage_text": item.usage_text,
        "error_code": item.error_code,
        "error_text": item.error_text[:ERROR_TEXT_CHARS_MAX],
        "result_at": now,
        "updated_at": now,
    }


def _record_late_usage(row: Request, item: Outcome, now: datetime) -> str:
    """Keep the late metering, or the proof that a cancelled call used nothing (A6, A16).

    Returns the billing state after it.
    """
    current = Request.objects.filter(id=row.id, billing_state=row.billing_state)
    waits = row.billing_state == Billing.PENDING and not row.usage_text and not row.resolved_at
    if waits and item.usage_text:
        current.update(
            usage_text=item.usage_text,
            provider_request_id=item.provider_request_id[:200],
            pending_reason=item.pending_reason,
            updated_at=now,
        )
    elif (
        waits and item.billing_state == Billing.NOT_CHARGED and row.result_state == Result.CANCELLED
    ):
        current.update(
            billing_state=Billing.NOT_CHARGED, pending_reason=item.pending_reason, updated_at=now
        )
        release_holds_in_tx(requests=[row])
        return Billing.NOT_CHARGED
    elif item.usage_text:
        current.update(late_usage_text=item.usage_text)
    return row.billing_state
