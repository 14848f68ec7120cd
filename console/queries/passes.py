"""Maintenance passes and processes as the console shows them: from rows, so of every process."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from kernel import clock
from kernel.conf import conf
from kernel.kernel import ONCE
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
    state: str  # running | ended (both: of `maintain --once`) | late | healthy


def passes() -> list[PassView]:
    """All passes by name. One query."""
    now = clock.now()
    return [_view(row, now) for row in PassStatus.objects.order_by("name")]


def processes(views: Iterable[PassView]) -> list[ProcessView]:
    """The kernels behind the passes, latest first. No query."""
    seen: dict[str, datetime] = {}
    busy: set[str] = set()
    for view in views:
        owner, at = view.row.owner, view.row.updated_at
        seen[owner] = max(seen.get(owner, at), at)
        if view.state == "running":
            busy.add(owner)
    return [
        ProcessView(name, at, _state_of(name, at, is_busy=name in busy))
        for name, at in sorted(seen.items(), key=lambda pair: pair[1], reverse=True)
    ]


def _state_of(name: str, seen_at: datetime, *, is_busy: bool) -> str:
    if name.startswith(f"{ONCE}_"):  # it ends by itself, and no sign of life follows
        return "running" if is_busy else "ended"
    late = clock.now() - timedelta(seconds=2 * conf.settlement_interval_seconds)
    return "healthy" if seen_at >= late else "late"


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
