"""A set whose rows all share one time: whole, in order, and each chunk reads its own (F9)."""

import hashlib
from datetime import timedelta

import pytest
from django.db import connection

from kernel import clock
from kernel.models import AuditRow, DeadLetter
from kernel.operations import AuditFilter
from kernel.operations.plan import Filter
from kernel.operations.sets import EXPORT_AUDIT, REPLAY, SOURCES, text_of
from tests.support.fixtures import server_db

__all__ = ["server_db"]

ROWS, CHUNK = 3_000, 150
READS_MAX = 5 * CHUNK  # the places, the rows by id, and what each statement begins with
LATER = 40  # rows of a later time: the last chunk goes over from one time to the next


def _acts() -> None:
    at = clock.db_now() - timedelta(hours=1)
    AuditRow.objects.bulk_create(
        AuditRow(
            id=f"aud_{number:09d}",
            subject=f"thing:{number}",
            sequence=1,
            actor_kind="user",
            actor_id="olga",
            action="thing.change",
            previous_sha256="",
            sha256=hashlib.sha256(str(number).encode()).hexdigest(),
            at=at + timedelta(seconds=number >= ROWS),
        )
        for number in range(ROWS + LATER)
    )


def _letters() -> None:
    at = clock.db_now() - timedelta(hours=1)
    DeadLetter.objects.bulk_create(
        DeadLetter(
            id=f"dlq_{number:09d}",
            account_id="acme",
            notification_id=f"ntf_{number}",
            channel="webhook",
            recipient="https://example.com",
            destination_id="hooks",
            content=b"{}",
            error_text="HTTP 500",
            error_fingerprint="f1",
            created_at=at + timedelta(seconds=number >= ROWS),
            updated_at=at,
        )
        for number in range(ROWS + LATER)
    )


def _row_reads() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for name, value in cursor.fetchall() if "rnd_deleted" not in name)


def _walked(kind: str, text: str) -> tuple[list[str], int]:
    """The ids of the set in order, and the most rows that one chunk read."""
    source, now = SOURCES[kind], clock.db_now()
    ids: list[str] = []
    place, most = None, 0
    while True:
        before = _row_reads() if connection.vendor == "mysql" else 0
        chunk = source.after(text, place, until=now, limit=CHUNK)
        if connection.vendor == "mysql":
            most = max(most, _row_reads() - before)
        if not chunk:
            return ids, most
        ids += [row_id for _, row_id, _ in chunk]
        place = chunk[-1][0], chunk[-1][1]


SETS = (
    (EXPORT_AUDIT, text_of(AuditFilter())),
    (EXPORT_AUDIT, text_of(AuditFilter(actor_id="olga"))),
    (EXPORT_AUDIT, text_of(AuditFilter(actions=("thing.change",)))),
    (REPLAY, Filter(destination_id="hooks").text()),
    (REPLAY, Filter(fingerprint="f1").text()),
    (REPLAY, Filter(account_id="acme").text()),
)


@pytest.mark.django_db
def test_every_row_of_one_time_comes_once_and_then_the_later_ones() -> None:
    _acts()
    _letters()
    for kind, text in SETS:
        ids, _most = _walked(kind, text)
        assert len(ids) == ROWS + LATER and ids == sorted(ids), (kind, text)


def test_no_chunk_reads_the_rows_that_earlier_ones_took(server_db: None) -> None:
    _acts()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE bz_audit")
        cursor.fetchall()
    ids, most = _walked(EXPORT_AUDIT, text_of(AuditFilter()))
    assert len(ids) == ROWS + LATER and most <= READS_MAX
