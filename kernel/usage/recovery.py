"""Recovery.

Leases that ended, leases renewed, and result bodies whose retention is over (A9, A17).
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import DatabaseError

from kernel import clock
from kernel.conf import conf
from kernel.models import Body, Request
from kernel.runtime.maintenance import PageReport
from kernel.sql import lock_free_in_tx
from kernel.states import Billing, Result
from kernel.transactions import LockWaits, is_lock_wait, reading, short_lock_waits, transaction
from kernel.usage.notices import tell_unknown_in_tx

ENDED = (Result.COMPLETE, Result.FAILED, Result.CANCELLED)


def expiry_page(*, cursor: Any = None, limit: int) -> PageReport:
    """Dispatched requests whose owner let the lease end become unknown; never sent again (A9).

    One that somebody has locked keeps no other waiting, nor does the alert of an account.
    """
    ended = _ended(limit=limit)
    ids = [request_id for request_id, _ in ended]
    try:
        moved = expire_leases(ids=ids) if ids else 0
    except DatabaseError as error:
        if not is_lock_wait(error):
            raise
        with short_lock_waits():
            moved = _expire_by_account(ended)
    more = ids[-1] if len(ids) == limit and moved else None
    return PageReport(scanned=len(ids), settled=moved, deferred=len(ids) - moved, cursor=more)


def _expire_by_account(ended: Sequence[tuple[str, str]]) -> int:
    of_account: dict[str, list[str]] = defaultdict(list)
    for request_id, account_id in ended:
        of_account[account_id].append(request_id)
    accounts = list(of_account.values())
    random.shuffle(accounts)  # the same locked ones must not always come first
    moved, waits = 0, LockWaits()
    for ids in accounts:
        if waits.are_enough:
            break
        try:
            moved += expire_leases(ids=ids)
        except DatabaseError as error:
            if not waits.bears(error):
                raise
    waits.end(done=moved)
    return moved


@transaction
def expire_leases(*, ids: Sequence[str]) -> int:
    """Of these the ones that nobody has locked and whose lease is over; how many."""
    now = clock.db_now()
    late = Request.objects.filter(result_state=Result.DISPATCHED, lease_expires_at__lt=now)
    ended = list(
        late.filter(id__in=lock_free_in_tx(Request, ids))
        .order_by("id")
        .values_list("id", flat=True)
    )
    if ended:
        late.filter(id__in=ended).update(**_unknown(now))
        tell_unknown_in_tx(ended, at=now)
    return len(ended)


@reading
def _ended(*, limit: int) -> list[tuple[str, str]]:
    """(id, account) of a page of them, the longest over first."""
    rows = Request.objects.filter(
        result_state=Result.DISPATCHED, lease_expires_at__lt=clock.db_now()
    )
    return list(rows.order_by("lease_expires_at", "id").values_list("id", "account_id")[:limit])


@transaction
def expire_lease(*, request_id: str) -> bool:
    """The same for one request, seen by a read (A9). True when it became unknown just now."""
    now = clock.db_now()
    moved = Request.objects.filter(
        id=request_id, result_state=Result.DISPATCHED, lease_expires_at__lt=now
    ).update(**_unknown(now))
    if moved:
        tell_unknown_in_tx([request_id], at=now)
    return moved == 1


@transaction
def renew_leases(*, owner: str, request_ids: Sequence[str]) -> None:
    """Move the leases of an owner's running calls forward, judged by the database's clock.

    A call that somebody has locked keeps its lease and no other from being renewed.
    """
    lease = clock.db_now() + timedelta(seconds=conf.dispatch_lease_seconds)
    free = lock_free_in_tx(Request, request_ids)
    Request.objects.filter(id__in=free, owner=owner, result_state=Result.DISPATCHED).update(
        lease_expires_at=lease
    )


@transaction
def purge_bodies(*, cursor: int | None = None, limit: int) -> PageReport:
    """Delete bodies of ended requests after their retention; metering and ledger stay (A17).

    Walks the pieces in the order they were stored, so the oldest come first and no index is needed.
    A request that has not ended keeps its body and never keeps later ones from their purge.
    """
    now = clock.db_now()
    before = now - timedelta(days=conf.result_retention_days)
    pieces = list(
        Body.objects.filter(id__gt=cursor or 0)
        .order_by("id")
        .values_list("id", "request_id")[:limit]
    )
    old = list(
        Request.objects.filter(
            id__in={request_id for _, request_id in pieces},
            updated_at__lt=before,
            result_state__in=ENDED,
            purged_at=None,
        ).values_list("id", flat=True)
    )
    # Deleted by primary key: a delete by secondary index deadlocks with inserts.
    doomed = list(Body.objects.filter(request_id__in=old).values_list("id", flat=True))
    Body.objects.filter(id__in=doomed).delete()
    Request.objects.filter(id__in=old, purged_at=None).update(purged_at=now)
    reached_young_ones = not Request.objects.filter(
        id__in={request_id for _, request_id in pieces}, admitted_at__lt=before
    ).exists()
    more = len(pieces) == limit and not reached_young_ones
    return PageReport(scanned=len(pieces), settled=len(old), cursor=pieces[-1][0] if more else None)


def _unknown(now: Any) -> dict[str, Any]:
    return {
        "result_state": Result.UNKNOWN,
        "billing_state": Billing.PENDING,
        "pending_reason": "no_usage",
        "error_code": "owner_lost",
        "error_text": "The process that sent this request stopped before it saved an outcome.",
        "result_at": now,
        "updated_at": now,
    }
