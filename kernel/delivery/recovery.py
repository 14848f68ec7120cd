"""Recovery of notifications: senders that were lost, and children that ended unseen (F2, F7)."""

import logging
import random
from collections.abc import Callable
from datetime import datetime
from functools import partial

from django.db.models import Q

from kernel import clock, schema
from kernel.delivery.sending import (
    Attempt,
    end_attempt_in_tx,
    end_child_in_tx,
    is_fault_ours,
    missing_for_dead_letters,
)
from kernel.errors import Unavailable
from kernel.models import Job, Notification
from kernel.runtime.maintenance import PageReport
from kernel.states import Delivery, JobState, NotificationState
from kernel.transactions import LockWaits, concerns_all, reading, short_lock_waits, transaction

log = logging.getLogger(__name__)

Cursor = tuple[datetime, str]
LOST_SENDER = "The sender stopped before it recorded an outcome; the message may have arrived."
# A parked child lost its workers too often: a replay queues it again.
CHILD_ENDS = frozenset(
    {JobState.DONE, JobState.FAILED, JobState.REFUSED, JobState.CANCELLED, JobState.PARKED}
)


def reclaim_page(*, cursor: Cursor | None = None, limit: int) -> PageReport:
    """Notifications whose sender's lease ended get their attempt recorded as unknown (F2).

    Each in its own transaction: one that fails is counted, one that somebody has locked is left for
    a later pass, and neither keeps others waiting. Then a page
    of those with executors whose child has ended in another way than by its executor. `cursor` is
    where that page starts. Nothing while migration 0069 is absent.
    """
    try:
        schema.require(schema.DELIVERY)
    except Unavailable:
        return PageReport()
    lost = _lost(limit=limit)
    children = _with_executors(after=cursor, limit=limit)
    ended = _ended([job_id for _, _, job_id in children])
    work: list[Callable[[], bool]] = [partial(reclaim, notification_id=one) for one in lost]
    work += [partial(end_child, job_id=one) for one in ended]
    moved = failed = 0
    random.shuffle(work)  # the same locked ones must not always come first
    waits = LockWaits()
    with short_lock_waits():
        for act in work:
            if waits.are_enough:
                break
            try:
                moved += act()
            except Exception as error:
                if waits.bears(error):
                    continue
                if concerns_all(error):
                    raise
                failed += 1
                log.warning("%s failed: %s", act, type(error).__name__)
    waits.end(done=moved)
    return PageReport(
        scanned=len(lost) + len(children),
        settled=moved,
        deferred=len(work) - moved - failed,
        failed=failed,
        cursor=children[-1][:2] if len(children) == limit else None,
    )


def reclaim(*, notification_id: str) -> bool:
    """sending -> queued or dead, its attempt unknown, when its lease has ended. False: it has not.

    The sender's token is taken away: if it still lives, what it records changes nothing.
    """
    return _reclaim(
        notification_id=notification_id,
        is_ours=is_fault_ours(notification_id=notification_id),
        missing=missing_for_dead_letters(),
    )


@transaction
def _reclaim(*, notification_id: str, is_ours: bool, missing: str) -> bool:
    row = (
        Notification.objects.select_for_update(skip_locked=True).filter(id=notification_id).first()
    )
    if row is None or row.state != NotificationState.SENDING or row.lease_expires_at is None:
        return False
    if row.lease_expires_at >= clock.db_now():
        return False
    attempt = Attempt(
        number=row.attempts + 1,
        outcome=Delivery.UNKNOWN,
        http_status=None,
        evidence=LOST_SENDER,
        started_at=row.updated_at,
        is_ours=is_ours,
    )
    end_attempt_in_tx(row, attempt, missing=missing, fence_token="")
    return True


@transaction
def end_child(*, job_id: str) -> bool:
    """Do what the executor's report would have done, for a child that ended without one (F7)."""
    job = Job.objects.select_for_update(skip_locked=True).filter(id=job_id).first()
    if job is None or job.state not in CHILD_ENDS:
        return False
    delivered = job.state == JobState.DONE
    error = "" if delivered else f"{job.state} {job.error_code} {job.error_text}"
    found = end_child_in_tx(job_id=job_id, delivered=delivered, error=error)
    return found is not None and found.state != NotificationState.WITH_EXECUTOR


@reading
def _lost(*, limit: int) -> list[str]:
    rows = Notification.objects.filter(
        state=NotificationState.SENDING, lease_expires_at__lt=clock.db_now()
    )
    return list(rows.order_by("lease_expires_at", "id").values_list("id", flat=True)[:limit])


@reading
def _with_executors(*, after: Cursor | None, limit: int) -> list[tuple[datetime, str, str]]:
    """(updated_at, id, child job) of a page of notifications that executors have."""
    rows = Notification.objects.filter(state=NotificationState.WITH_EXECUTOR)
    if after is not None:
        at, row_id = after
        rows = rows.filter(updated_at__gte=at).filter(Q(updated_at__gt=at) | Q(id__gt=row_id))
    found = rows.order_by("updated_at", "id").values_list("updated_at", "id", "child_job_id")
    return list(found[:limit])


@reading
def _ended(job_ids: list[str]) -> list[str]:
    rows = Job.objects.filter(id__in=job_ids, state__in=CHILD_ENDS)
    return list(rows.order_by("id").values_list("id", flat=True))
