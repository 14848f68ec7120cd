"""The clock: the application's time for display and budgets, the database's time for liveness."""

import time
from datetime import UTC, datetime

from django.db import connection


def now() -> datetime:
    """The application's time, UTC. For display and logs; never to judge another process's lease."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds that never go back. For deadlines inside one process."""
    return time.monotonic()


def db_now() -> datetime:
    """The database's time, UTC, microseconds. All leases, retries and expiries are judged by it."""
    if connection.vendor == "sqlite":
        return now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT UTC_TIMESTAMP(6)")
        (value,) = cursor.fetchone()
    return value.replace(tzinfo=UTC)
