"""Results: the provider's bytes, hash and metering in one transaction, under the fence (A6, A7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kernel import clock
from kernel.models import Request
from kernel.states import RESULT, Billing, Result
from kernel.transactions import transaction
from kernel.usage.bodies import insert_bodies_in_tx
from kernel.usage.dispatch import release_holds_in_tx
from kernel.usage.sql import update_where_in_tx

ERROR_TEXT_CHARS_MAX = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one provider call came to. `body` is None when no byte arrived; `usage_text` '' = none."""

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

    The holder of the original fence still moves `unknown` to `complete`. Otherwise a late outcome
    changes nothing, but late usage is recorded.
    """
    now = clock.db_now()
    moved = {item.request_id for item in items if _move(item, now)}
    insert_bodies_in_tx(
        kind="result",
        bodies=[
            (item.request_id, item.body)
            for item in items
            if item.request_id in moved and item.body is not None
        ],
    )
    saved = [_saved(item, item.request_id in moved, now) for item in items]
    free = [
        item.request_id
        for item in items
        if item.request_id in moved and item.billing_state == Billing.NOT_CHARGED
    ]
    if free:
        release_holds_in_tx(requests=list(Request.objects.filter(id__in=free)))
    return saved


def _move(item: Outcome, now: datetime) -> bool:
    sources = sorted(RESULT.moves_to(item.result_state) - {Result.ADMITTED})
    marks = ", ".join(["%s"] * len(sources))
    return (
        update_where_in_tx(
            Request,
            _columns(item, now),
            f"id = %s AND fence_token = %s AND resolved_at IS NULL AND result_state IN ({marks})",
            [item.request_id, item.fence_token, *sources],
        )
        == 1
    )


def _saved(item: Outcome, moved: bool, now: datetime) -> Saved:
    if moved:
        return Saved(True, item.result_state, item.billing_state)
    own = Request.objects.filter(id=item.request_id, fence_token=item.fence_token)
    row = own.select_for_update().first()
    if row is None:
        return Saved(False, "", "")
    if row.result_state == item.result_state and row.result_sha256 == item.sha256:
        return Saved(True, row.result_state, row.billing_state)
    _record_late_usage(row, item, now)
    return Saved(False, row.result_state, row.billing_state)


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


def _record_late_usage(row: Request, item: Outcome, now: datetime) -> None:
    if not item.usage_text:
        return
    current = Request.objects.filter(id=row.id, billing_state=row.billing_state)
    if row.billing_state == Billing.PENDING and not row.usage_text:
        current.update(
            usage_text=item.usage_text,
            provider_request_id=item.provider_request_id[:200],
            pending_reason=item.pending_reason,
            updated_at=now,
        )
    else:
        current.update(late_usage_text=item.usage_text)
