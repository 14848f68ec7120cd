"""Home's figures: one UNION ALL of capped counts and oldest times, each served by an index."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from kernel import clock
from kernel.checks import DOCTOR_PREFIX
from kernel.conf import conf
from kernel.doctor import FAILURE, LEVELS, WARNING
from kernel.jobs.calls import ANSWER_SECONDS
from kernel.states import Billing, Result

NEWEST_PENDING_ROWS = 1000
OVERDUE_SECONDS = 120  # a notification that is due this long and still queued needs a look

_COUNTED = """
SELECT '{name}' AS name, '' AS detail, COUNT(*) AS amount,
  (SELECT MIN({since}) FROM {table} WHERE {oldest}) AS oldest_at
FROM (SELECT 1 AS one FROM {table} WHERE {where} LIMIT {limit}) AS {name}_rows
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
# What agent jobs leave to people; read only where their tables are (migration 0068). The rule of
# kernel/jobs/calls.py (is_lost) for calls that no job owns.
_UNCERTAIN = """
SELECT 'uncertain' AS name, '' AS detail, COUNT(*) AS amount,
  MIN(bz_tool_calls.updated_at) AS oldest_at
FROM bz_tool_calls LEFT JOIN bz_jobs ON bz_jobs.id = bz_tool_calls.job_id
  LEFT JOIN bz_tools ON bz_tools.id = bz_tool_calls.tool
WHERE bz_tool_calls.state = 'dispatching' AND (bz_jobs.state <> 'running'
  OR (bz_jobs.state IS NULL AND (bz_tool_calls.error_code <> '' OR {late})))
"""
# The doctor's findings stand in the same table: no invariants, and `offenders` is their level.
_CHECKS = f"""
SELECT 'broken' AS name, '' AS detail, COUNT(*) AS amount, MIN(checked_at) AS oldest_at
FROM bz_check_reports WHERE offenders > 0 AND name NOT LIKE '{DOCTOR_PREFIX}%'
UNION ALL
SELECT 'unfit' AS name, '' AS detail, COUNT(*) AS amount, MIN(checked_at) AS oldest_at
FROM bz_check_reports WHERE offenders = {LEVELS.index(FAILURE)} AND name LIKE '{DOCTOR_PREFIX}%'
UNION ALL
SELECT 'warned' AS name, '' AS detail, COUNT(*) AS amount, MIN(checked_at) AS oldest_at
FROM bz_check_reports WHERE offenders = {LEVELS.index(WARNING)} AND name LIKE '{DOCTOR_PREFIX}%'
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many rows wait (counted up to the cap) and since when the oldest does."""

    count: int
    capped: bool = False
    oldest_at: datetime | None = None

    def __str__(self) -> str:
        return f"{self.count:,}{'+' if self.capped else ''}"


NOTHING = Backlog(0)


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
    broken: Backlog  # invariants
    unfit: Backlog  # checks of the installation that fail
    warned: Backlog  # checks of the installation that warn
    consumed_nano: int
    approvals: Backlog = NOTHING  # open, and somebody could decide them now
    uncertain: Backlog = NOTHING  # tool calls that were sent, and nobody waits for the answer
    parked: Backlog = NOTHING
    failing: Backlog = NOTHING  # recorded decisions whose carrying through failed so far
    dead_letters: Backlog = NOTHING  # open ones
    closed: Backlog = NOTHING  # destinations that failures, or a person, closed
    overdue: Backlog = NOTHING  # notifications that are due for a while and were not sent
    reasons: dict[str, Backlog] = field(default_factory=dict)


def figures(*, with_jobs: bool = True, with_delivery: bool = False) -> Figures:
    """One query. Without migration 0068 (`with_jobs` False) there is nothing of jobs to count.

    Delivery is counted where 0069 is applied and the page asks for it (`with_delivery`).
    """
    states = {
        "unknown": f"result_state = '{Result.UNKNOWN}'",
        "dispatched": f"result_state = '{Result.DISPATCHED}'",
        "admitted": f"result_state = '{Result.ADMITTED}'",
        "pending": f"billing_state = '{Billing.PENDING}'",
    }
    parts = [
        _counted(name, "bz_usage_requests", where, since="updated_at")
        for name, where in states.items()
    ]
    parts += _of_jobs() if with_jobs else []
    parts += _of_delivery() if with_delivery else []
    parts += [_REASONS.format(rows=NEWEST_PENDING_ROWS), _ACCOUNTS, _CHECKS]
    with connection.cursor() as cursor:
        cursor.execute("\nUNION ALL\n".join(parts))
        found = cursor.fetchall()
    single = {name: row for name, *row in found if name != "reason"}
    overrun, consumed, overrun_at = single.pop("accounts")
    return Figures(
        **{name: backlog(amount, oldest) for name, (_, amount, oldest) in single.items()},
        overrun=backlog(overrun, overrun_at),
        consumed_nano=int(consumed),
        reasons={
            detail: backlog(amount, oldest)
            for name, detail, amount, oldest in found
            if name == "reason"
        },
    )


def _counted(name: str, table: str, where: str, *, since: str, oldest: str = "") -> str:
    """A capped count of rows and the oldest moment of `oldest` (default: of the same rows)."""
    return _COUNTED.format(
        name=name,
        table=table,
        where=where,
        since=since,
        oldest=oldest or where,
        limit=conf.count_cap + 1,
    )


def _of_jobs() -> list[str]:
    now = clock.now()
    return [
        _counted(
            "approvals",
            "bz_approvals",
            f"state = 'open' AND expires_at > '{_sql_moment(now)}'",
            since="created_at",
            oldest="state = 'open'",
        ),
        _counted("parked", "bz_jobs", "state = 'parked'", since="due_at"),
        _counted(
            "failing",
            "bz_approval_continuations",
            "state = 'owed' AND attempts > 0 AND error_text <> ''",
            since="created_at",
        ),
        _UNCERTAIN.format(late=_late_calls(now)),
    ]


def _late_calls(now: datetime) -> str:
    """Calls that were sent longer ago than their tool's deadline and the time for its answer."""
    edge = _sql_moment(now - timedelta(seconds=ANSWER_SECONDS))
    deadline = "COALESCE(bz_tools.deadline_seconds, 0)"
    if connection.vendor == "sqlite":
        # Its times are texts with six digits of a second; strftime writes three.
        ago = f"'-' || {deadline} || ' seconds'"
        moment = f"strftime('%Y-%m-%d %H:%M:%f', '{edge}', {ago}) || '000'"
    else:
        moment = f"TIMESTAMPADD(SECOND, -{deadline}, CAST('{edge}' AS DATETIME(6)))"
    return f"bz_tool_calls.updated_at < {moment}"


def _of_delivery() -> list[str]:
    late = clock.now() - timedelta(seconds=OVERDUE_SECONDS)
    return [
        _counted("dead_letters", "bz_delivery_dlq", "state = 'open'", since="created_at"),
        _counted(
            "closed",
            "bz_destinations",
            "active AND closed_until_at IS NOT NULL",
            since="updated_at",
        ),
        _counted(
            "overdue",
            "bz_notifications",
            f"state = 'queued' AND due_at < '{_sql_moment(late)}' AND destination_id NOT IN"
            " (SELECT id FROM bz_destinations WHERE closed_until_at IS NOT NULL)",
            since="due_at",
        ),
    ]


def _sql_moment(moment: datetime) -> str:
    """A moment as both databases store and compare it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def backlog(amount: Any, oldest: Any) -> Backlog:
    """A count up to the cap, and a moment as the database gave it."""
    count = int(amount)
    return Backlog(min(count, conf.count_cap), count > conf.count_cap, _moment(oldest))


def _moment(value: Any) -> datetime | None:
    if isinstance(value, str):  # SQLite has no type of its own for times
        value = datetime.fromisoformat(value)
    return value.replace(tzinfo=UTC) if value is not None else None
