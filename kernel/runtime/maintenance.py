"""A maintenance pass: pages with a cursor that wraps, one shared run, back-off on failure (B)."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError

from kernel import clock
from kernel.conf import conf
from kernel.errors import CommitOutcomeUnknown
from kernel.models import PassStatus
from kernel.runtime.database import Database
from kernel.transactions import is_lock_wait, reading, transaction

log = logging.getLogger(__name__)

DATABASE_FAILURES = (DatabaseError, InterfaceError, CommitOutcomeUnknown)


@dataclass(frozen=True, slots=True)
class PageReport:
    """Counters of one page. `cursor` is where the next page starts; None = the end, wrap."""

    scanned: int = 0
    settled: int = 0
    deferred: int = 0
    failed: int = 0
    cursor: Any = None

    @property
    def has_more(self) -> bool:
        return self.cursor is not None


@dataclass(slots=True)
class Progress:
    """What `get_*_progress()` answers, from memory: the latest page, no ids, no bodies (B6)."""

    scanned: int = 0
    settled: int = 0
    deferred: int = 0
    failed: int = 0
    has_more: bool = False


@dataclass(slots=True)
class Totals:
    """Sums over one run of a pass, and the failure that ended it early ('' = none)."""

    pages: int = 0
    scanned: int = 0
    settled: int = 0
    deferred: int = 0
    failed: int = 0
    error_code: str = ""

    def add(self, report: PageReport) -> None:
        self.pages += 1
        self.scanned += report.scanned
        self.settled += report.settled
        self.deferred += report.deferred
        self.failed += report.failed


@dataclass(slots=True)
class Backoff:
    """Waits `backoff_first_seconds`, doubling to `backoff_max_seconds`; reset by success (B5)."""

    until: float = 0.0
    wait_seconds: float = 0.0

    def failed(self) -> None:
        first, most = conf.backoff_first_seconds, conf.backoff_max_seconds
        self.wait_seconds = min(self.wait_seconds * 2 if self.wait_seconds else first, most)
        self.until = clock.monotonic() + self.wait_seconds

    def reset(self) -> None:
        self.until, self.wait_seconds = 0.0, 0.0


@dataclass(slots=True)
class Pass:
    """One kind of maintenance of one kernel.

    `page(cursor=..., limit=...)` is a verb that handles one page in its own transaction(s) and
    returns a PageReport. `run()` walks pages until the end or the time budget; a second caller
    joins the active run (B4). Different kernels have their own Pass objects and are independent.
    A new pass is due at once, the next one `interval_seconds` after the start of the last. Runs
    that were missed are made up for by one: a run looks at all that is there.
    """

    name: str
    owner: str
    database: Database
    page: Callable[..., PageReport]
    interval_seconds: float
    page_rows: int
    budget_seconds: float
    progress: Progress = field(default_factory=Progress)
    totals: Totals = field(default_factory=Totals)
    backoff: Backoff = field(default_factory=Backoff)
    ended_at: float | None = None  # monotonic: when a run last reached its end here
    failures: int = 0  # runs that ended in a back-off
    _cursor: Any = None
    _next_due: float = field(default_factory=clock.monotonic)
    _active: asyncio.Task[Progress] | None = None

    def due(self) -> bool:
        """Whether the interval has passed, no back-off holds and no run is active."""
        now = clock.monotonic()
        return self._active is None and now >= self._next_due and now >= self.backoff.until

    def overdue(self) -> bool:
        """Due for longer than another interval: HTTP traffic may start it (B1)."""
        return self.due() and clock.monotonic() >= self._next_due + self.interval_seconds

    async def run(self) -> Progress:
        """Run one pass, or join the active one. A failure never raises: the pass backs off (B5)."""
        if self._active is None:
            self._next_due = clock.monotonic() + self.interval_seconds
            self._active = asyncio.get_running_loop().create_task(self._walk())
            self._active.add_done_callback(self._ended)
        return await asyncio.shield(self._active)

    def _ended(self, task: asyncio.Task[Progress]) -> None:
        self._active = None

    async def _walk(self) -> Progress:
        stop_at = clock.monotonic() + self.budget_seconds
        totals = self.totals = Totals()
        started_at = clock.now()
        error_code = ""
        try:
            while True:
                report = await self.database.in_tx(
                    self.page, cursor=self._cursor, limit=self.page_rows
                )
                self._record(report, totals)
                ended = not report.has_more or clock.monotonic() >= stop_at
                await self._publish_progress(totals, started_at=started_at, running=not ended)
                if ended:
                    self.backoff.reset()
                    self.ended_at = clock.monotonic()
                    return self.progress
        except DATABASE_FAILURES as error:
            self.backoff.failed()
            error_code = type(error).__name__
            log.warning("pass %s backs off for %.0f s", self.name, self.backoff.wait_seconds)
        except Exception as error:
            self.backoff.failed()
            error_code = type(error).__name__
            log.exception("pass %s has a defect and backs off", self.name)
        self.failures += 1
        totals.error_code = error_code
        await self._publish_failure(totals, started_at=started_at, error_code=error_code)
        return self.progress

    def _record(self, report: PageReport, totals: Totals) -> None:
        self._cursor = report.cursor
        totals.add(report)
        self.progress = Progress(
            report.scanned, report.settled, report.deferred, report.failed, report.has_more
        )

    async def _publish_progress(self, totals: Totals, *, started_at: Any, running: bool) -> None:
        """Write the counters down, unless somebody has their row locked: the work is done."""
        try:
            await self._publish(totals, started_at=started_at, running=running)
        except DATABASE_FAILURES as error:
            if not is_lock_wait(error):
                raise
            log.warning("pass %s could not record its progress: its row is locked", self.name)

    async def _publish(self, totals: Totals, *, started_at: Any, running: bool) -> None:
        await self.database.in_tx(
            record_status,
            name=self.name,
            values={
                **asdict(self.progress),
                "owner": self.owner,
                "running": running,
                "pages": totals.pages,
                "pass_scanned": totals.scanned,
                "pass_settled": totals.settled,
                "started_at": started_at,
                "finished_at": None if running else clock.now(),
                "backoff_until_at": None,
                "error_code": "",
            },
        )

    async def _publish_failure(self, totals: Totals, *, started_at: Any, error_code: str) -> None:
        until = clock.now() + timedelta(seconds=self.backoff.wait_seconds)
        try:
            await self.database.in_tx(
                record_status,
                name=self.name,
                values={
                    "owner": self.owner,
                    "running": False,
                    "started_at": started_at,
                    "finished_at": clock.now(),
                    "backoff_until_at": until,
                    "error_code": error_code,
                },
            )
        except DATABASE_FAILURES:
            log.warning("pass %s could not record its back-off", self.name)


@reading
def seconds_since_a_pass() -> float | None:
    """How long ago any process last wrote down a pass; None when none ever did (B6)."""
    latest = PassStatus.objects.order_by("-updated_at").values_list("updated_at", flat=True).first()
    return None if latest is None else (clock.db_now() - latest).total_seconds()


@transaction
def record_status(*, name: str, values: dict[str, Any]) -> None:
    """Upsert the counters-only row of a pass, so that other processes' consoles see it (B6)."""
    PassStatus.objects.update_or_create(
        name=name, defaults={**values, "updated_at": clock.db_now()}
    )
