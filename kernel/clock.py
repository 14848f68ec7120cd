"""The clock: the application's time for display and budgets, the database's time for liveness."""

import time
from datetime import UTC, datetime

from django.db import connection

# Linux stops the usual one while the machine is suspended; the others have no name for it.
_AWAKE_OR_NOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> datetime:
    """The application's time, UTC. For display and logs; never to judge another process's lease."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds that never go back and go on while the machine sleeps. For deadlines of one process.

    A lease ends in the database whatever happens here: who slept must know that it is over.
    """
    return time.clock_gettime(_AWAKE_OR_NOT)


def db_now() -> datetime:
    """The database's time, UTC, microseconds. All leases, retries and expiries are judged by it."""
    if connection.vendor == "sqlite":
        return now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT UTC_TIMESTAMP(6)")
        (value,) = cursor.fetchone()
    return value.replace(tzinfo=UTC)
