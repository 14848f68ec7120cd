"""Maintenance passes and processes as the console shows them: from rows, so of every process."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from kernel import clock
from kernel.conf import conf
from kernel.models import PassStatus

INTERVALS = {
    "settlement": "settlement_interval_seconds",
    "recovery": "recovery_interval_seconds",
    "purge": "purge_interval_seconds",
    "continuations": "continuation_interval_seconds",
    "approval_expiry": "approval_expiry_interval_seconds",
    "job_recovery": "job_recovery_interval_seconds",
    "notification_recovery": "recovery_interval_seconds",
    "operations": "operation_interval_seconds",
    "receipts": "purge_interval_seconds",
    "purge_jobs": "purge_interval_seconds",
    "purge_attempts": "purge_interval_seconds",
    "purge_dead_letters": "purge_interval_seconds",
    "purge_exports": "purge_interval_seconds",
    "audit_copy": "audit_copy_interval_seconds",
}


@dataclass(frozen=True, slots=True)
class PassView:
    """One pass: its last run, and whether it is late."""

    row: PassStatus
    state: str  # running | backing_off | late | healthy
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class ProcessView:
    """One kernel that reported passes lately."""

    name: str
    seen_at: datetime
    state: str


def passes() -> list[PassView]:
    """All passes by name. One query."""
    now = clock.now()
    return [_view(row, now) for row in PassStatus.objects.order_by("name")]


def processes(views: Iterable[PassView]) -> list[ProcessView]:
    """The kernels behind the passes, latest first. No query."""
    seen: dict[str, datetime] = {}
    for view in views:
        seen[view.row.owner] = max(
            seen.get(view.row.owner, view.row.updated_at), view.row.updated_at
        )
    late = clock.now() - timedelta(seconds=2 * conf.settlement_interval_seconds)
    return [
        ProcessView(name, at, "healthy" if at >= late else "late")
        for name, at in sorted(seen.items(), key=lambda pair: pair[1], reverse=True)
    ]


def _view(row: PassStatus, now: datetime) -> PassView:
    interval = timedelta(
        seconds=getattr(conf, INTERVALS.get(row.name, "settlement_interval_seconds"))
    )
    ended = row.finished_at or row.updated_at
    next_at = row.backoff_until_at or ended + interval
    if row.running and row.updated_at >= now - interval * 2:
        return PassView(row, "running", None)
    if row.backoff_until_at is not None and row.backoff_until_at > now:
        return PassView(row, "backing_off", next_at)
    if ended < now - interval * 3:
        return PassView(row, "late", next_at)
    return PassView(row, "healthy", next_at)
