"""Purges beside traffic and each other: nobody waits for them, none fails by a deadlock (A17).

A database server only: the embedded database has one writer at a time.
"""

import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.db.transaction import atomic

from kernel import clock, retention
from kernel.ids import new_id
from kernel.models import DeliveryAttempt, Notification
from tests.delivery.post import in_tx
from tests.support.fixtures import server_db
from tests.usage.flow import at_once

__all__ = ["server_db"]
pytestmark = pytest.mark.usefixtures("server_db")

ROWS, PURGES, INSERTS = 1200, 3, 60


@atomic  # one that is never tried again: a deadlock of an insert is to be seen
def delivered(count: int, *, days_ago: int = 400) -> None:
    """Notifications that ended so long ago, with two attempts each, which end with it."""
    at = clock.db_now() - timedelta(days=days_ago)
    rows = [
        Notification(
            id=new_id("ntf"),
            account_id="acme",
            kind="delivery",
            channel="webhook",
            content=b"{}",
            state="delivered",
            due_at=at,
            created_at=at,
            updated_at=at,
            finished_at=at,
        )
        for _ in range(count)
    ]
    Notification.objects.bulk_create(rows)
    DeliveryAttempt.objects.bulk_create(
        DeliveryAttempt(
            notification_id=row.id, number=number, outcome="unknown", started_at=at, ended_at=at
        )
        for row in rows
        for number in (1, 2)
    )


def insert_many() -> float:
    """Insert young and old rows; the longest wait of an insert in seconds."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 2")
    longest = 0.0
    for number in range(INSERTS):
        began = time.monotonic()
        delivered(1, days_ago=400 if number % 2 else 0)
        longest = max(longest, time.monotonic() - began)
    return longest


def test_no_insert_waits_for_a_purge_that_is_not_committed_yet() -> None:
    delivered(50)
    reached, gate = threading.Event(), threading.Event()

    def purge() -> Any:
        report = retention.purge_attempts.transaction(limit=50)  # type: ignore[attr-defined]
        reached.set()
        assert gate.wait(timeout=30)
        return report

    def insert() -> float:
        try:
            assert reached.wait(timeout=30)
            return insert_many()
        finally:
            gate.set()

    report, longest = at_once(partial(in_tx, act=purge), insert)
    assert (report.scanned, report.settled) == (50, 100)
    assert isinstance(longest, float), longest


def test_purges_at_once_beside_inserts_fail_by_no_deadlock_and_take_everything_once() -> None:
    delivered(ROWS)

    def purge() -> int:
        total, cursor = 0, None
        while True:
            report = retention.purge_attempts(cursor=cursor, limit=100)
            total, cursor = total + report.settled, report.cursor
            if cursor is None:
                return total

    outcomes = at_once(*[purge] * PURGES, insert_many)
    assert not [each for each in outcomes if isinstance(each, Exception)], outcomes
    left = partial(retention.purge_attempts, limit=1000)
    left()
    assert left().settled == 0
    old = Notification.objects.filter(finished_at__lt=clock.db_now() - timedelta(days=200))
    assert not DeliveryAttempt.objects.filter(notification_id__in=old.values("id")).exists()
    assert DeliveryAttempt.objects.count() == INSERTS, "the young ones stay"
