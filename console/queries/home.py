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
  (SELECT MIN(updated_at) FROM bz_usage_requests WHERE {where}) AS oldest_at
FROM (SELECT 1 AS one FROM bz_usage_requests WHERE {where} LIMIT {limit}) AS {name}_rows
"""
_REASONS = """
SELECT 'reason' AS name, pending_reason AS detail, COUNT(*) AS amount,
  MIN(updated_at) AS oldest_at
FROM (SELECT pending_reason, result_state, updated_at FROM bz_usage_requests
  WHERE billing_state = 'pending' ORDER BY updated_at DESC, id DESC LIMIT {rows}) AS newest
WHERE result_state <> 'unknown' GROUP BY pending_reason
"""
_ACCOUNTS = """
SELECT 'accounts' AS name, CAST(COUNT(overrun_at) AS CHAR) AS detail,
  COALESCE(SUM(consumed_nano), 0) AS amount, MIN(overrun_at) AS oldest_at
FROM bz_usage_accounts
"""
_CHECKS = """
SELECT 'broken' AS name, '' AS detail, COUNT(*) AS amount, MIN(checked_at) AS oldest_at
FROM bz_check_reports WHERE offenders > 0
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many rows wait (counted up to the cap) and since when the oldest does."""

    count: int
    capped: bool = False
    oldest_at: datetime | None = None

    def __str__(self) -> str:
        return f"{self.count:,}{'+' if self.capped else ''}"


@dataclass(slots=True)
class Figures:
    """What Home shows in numbers.

    `reasons` covers those of the newest NEWEST_PENDING_ROWS pending requests whose outcome is
    known, by reason; '' = settled by the next pass.
    """

    unknown: Backlog
    pending: Backlog
    dispatched: Backlog
    admitted: Backlog
    overrun: Backlog
    broken: Backlog
    consumed_nano: int
    reasons: dict[str, Backlog] = field(default_factory=dict)


def figures() -> Figures:
    """One query."""
    states = {
        "unknown": f"result_state = '{Result.UNKNOWN}'",
        "dispatched": f"result_state = '{Result.DISPATCHED}'",
        "admitted": f"result_state = '{Result.ADMITTED}'",
        "pending": f"billing_state = '{Billing.PENDING}'",
    }
    parts = [
        _COUNTED.format(name=name, where=where, limit=conf.count_cap + 1)
        for name, where in states.items()
    ]
    parts += [_REASONS.format(rows=NEWEST_PENDING_ROWS), _ACCOUNTS, _CHECKS]
    with connection.cursor() as cursor:
        cursor.execute("\nUNION ALL\n".join(parts))
        found = cursor.fetchall()
    single = {name: row for name, *row in found if name != "reason"}
    overrun, consumed, overrun_at = single.pop("accounts")
    return Figures(
        **{name: _backlog(amount, oldest) for name, (_, amount, oldest) in single.items()},
        overrun=_backlog(overrun, overrun_at),
        consumed_nano=int(consumed),
        reasons={
            detail: _backlog(amount, oldest)
            for name, detail, amount, oldest in found
            if name == "reason"
        },
    )


def _backlog(amount: Any, oldest: Any) -> Backlog:
    count = int(amount)
    return Backlog(min(count, conf.count_cap), count > conf.count_cap, _moment(oldest))


def _moment(value: Any) -> datetime | None:
    if isinstance(value, str):  # SQLite has no type of its own for times
        value = datetime.fromisoformat(value)
    return value.replace(tzinfo=UTC) if value is not None else None
