"""Home's figures: one UNION ALL of capped counts and oldest times, each served by an index."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from kernel.conf import conf
from kernel.states import Billing, Result

NEWEST_PENDING_ROWS = 1000

_COUNTED = """
SELECT '{name}' AS name, '' AS detail, COUNT(*) AS amount,
  (SELECT MIN({at}) FROM bz_usage_requests WHERE {where}) AS oldest_at
FROM (SELECT 1 AS one FROM bz_usage_requests WHERE {where} LIMIT {limit}) AS {name}_rows
"""
_REASONS = """
SELECT 'reason' AS name, pending_reason AS detail, COUNT(*) AS amount, NULL AS oldest_at
FROM (SELECT pending_reason FROM bz_usage_requests WHERE billing_state = 'pending' AND result_state <> 'unknown'
  ORDER BY updated_at DESC, id DESC LIMIT {rows}) AS newest GROUP BY pending_reason
"""
_ACCOUNTS = """
SELECT 'consumed' AS name, '' AS detail, COALESCE(SUM(consumed_nano), 0) AS amount,
  NULL AS oldest_at FROM bz_usage_accounts
UNION ALL
SELECT 'held' AS name, '' AS detail, COALESCE(SUM(held_nano), 0) AS amount,
  NULL AS oldest_at FROM bz_usage_accounts
UNION ALL
SELECT 'overrun' AS name, '' AS detail, COUNT(*) AS amount, MIN(overrun_at) AS oldest_at
FROM bz_usage_accounts WHERE overrun_at IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many rows wait (counted up to the cap) and since when the oldest does."""

    count: int
    capped: bool
    oldest_at: datetime | None

    def __str__(self) -> str:
        return f"{self.count:,}{'+' if self.capped else ''}"


@dataclass(slots=True)
class Figures:
    """What Home shows in numbers. `reasons` covers the newest pending requests with a known outcome."""

    unknown: Backlog
    pending: Backlog
    dispatched: Backlog
    admitted: Backlog
    overrun: Backlog
    consumed_nano: int
    held_nano: int
    reasons: dict[str, int] = field(default_factory=dict)


def figures() -> Figures:
    """One query."""
    limit = conf.count_cap + 1
    states = {
        "unknown": f"result_state = '{Result.UNKNOWN}'",
        "dispatched": f"result_state = '{Result.DISPATCHED}'",
        "admitted": f"result_state = '{Result.ADMITTED}'",
        "pending": f"billing_state = '{Billing.PENDING}'",
    }
    parts = [
        _COUNTED.format(name=name, at="updated_at", where=where, limit=limit)
        for name, where in states.items()
    ]
    parts += [_REASONS.format(rows=NEWEST_PENDING_ROWS), _ACCOUNTS]
    with connection.cursor() as cursor:
        cursor.execute("\nUNION ALL\n".join(parts))
        found = cursor.fetchall()
    single = {name: (amount, oldest) for name, _detail, amount, oldest in found if name != "reason"}
    return Figures(
        **{name: _backlog(*single[name]) for name in (*states, "overrun")},
        consumed_nano=int(single["consumed"][0]),
        held_nano=int(single["held"][0]),
        reasons={detail: int(amount) for name, detail, amount, _ in found if name == "reason"},
    )


def _backlog(amount: Any, oldest: Any) -> Backlog:
    count = int(amount)
    return Backlog(min(count, conf.count_cap), count > conf.count_cap, _moment(oldest))


def _moment(value: Any) -> datetime | None:
    if isinstance(value, str):  # SQLite has no type of its own for times
        value = datetime.fromisoformat(value)
    return value.replace(tzinfo=UTC) if value is not None else None
