"""`manage.py maintain [--once]`: every maintenance pass, as a process or from cron (B, L4)."""

import asyncio
import contextlib
import fcntl
import logging
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

import uvloop
from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from kernel.conf import conf
from kernel.ids import new_id
from kernel.kernel import ONCE, Kernel
from kernel.management.base import EXIT_FAILED, KernelCommand, Options, leave
from kernel.metrics import serve_metrics
from kernel.runtime import Pass
from kernel.runtime.maintenance import Totals

log = logging.getLogger(__name__)

TICK_SECONDS = 0.5
CODES = """\
Exit codes of --once:
  0  every pass reached its end (also: another --once is running here and does it)
  1  a pass failed, backed off or was interrupted; the next run goes on
  2  the schema is not ready: run manage.py db_init

Rows that cannot be settled yet are counted as deferred or failed and do not
change the exit code: they wait for a person, with their reason, and never keep
other rows waiting.

Runs may overlap, also with standalone and on other machines: every row moves
by compare-and-set and has at most one ledger row, so a second run finds less
to do. --once takes a lock in the var directory only so that cron does not pile
up runs while the database is slow."""


@dataclass
class Outcome:
    """How one pass of --once went: its sums, and what ended it early ('' = it reached its end)."""

    name: str
    sums: Totals = field(default_factory=Totals)
    trouble: str = ""

    def __str__(self) -> str:
        sums = self.sums
        counters = (
            f"{self.name}: scanned {sums.scanned}, settled {sums.settled},"
            f" deferred {sums.deferred}, failed {sums.failed}, pages {sums.pages}"
        )
        return f"{counters}; {self.trouble}" if self.trouble else counters


class Command(KernelCommand):
    help = (
        "Run maintenance: expired leases, settlement, the purge of old bodies. Not needed beside"
        " standalone or a web server, which do it themselves."
    )
    more = CODES

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--once",
            action="store_true",
            help="run every pass once, to its end, and exit; without it: until SIGTERM or Ctrl-C",
        )

    def run(self, options: Options) -> None:
        if not options["once"]:
            uvloop.run(self._loop())
            return
        with _lock() as is_ours:
            if not is_ours:
                self.say("Another maintain --once is running; this one leaves it to that.")
                return
            outcomes = uvloop.run(self._once())
        troubled = [outcome.name for outcome in outcomes if outcome.trouble]
        if troubled:
            raise CommandError(
                f"Not done: {', '.join(troubled)}. The next run goes on from there.",
                returncode=EXIT_FAILED,
            )

    async def _once(self) -> list[Outcome]:
        kernel = Kernel(owner=new_id(ONCE))
        await kernel.initialize()
        stop = _stopped_by_signals()
        outcomes = []
        for each in kernel.passes:
            outcome = await _to_its_end(kernel, each, stop)
            self.say(str(outcome))
            outcomes.append(outcome)
        await self._close(kernel)
        return outcomes

    async def _loop(self) -> None:
        kernel = Kernel()
        await kernel.initialize()
        serve_metrics(kernel, address=settings.METRICS_ADDRESS)
        stop = _stopped_by_signals()
        intervals = ", ".join(f"{p.name} every {p.interval_seconds:g} s" for p in kernel.passes)
        self.say(f"Maintenance runs: {intervals}. Ctrl-C or SIGTERM closes.")
        self.stdout.flush()
        while not stop.is_set():
            try:
                await kernel.tick()
            except Exception:  # one bad tick must not end the timer (B1)
                log.exception("a tick failed")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), TICK_SECONDS)
        self.say("Closing: no new pass; waiting for what has started.")
        await self._close(kernel)

    async def _close(self, kernel: Kernel) -> None:
        report = await kernel.close()
        if not report.drained:
            error = CommandError(
                f"The close budget of {conf.close_budget_seconds} s ran out; left: {report.left}."
                " Each row is either committed or untouched; the next run goes on.",
                returncode=EXIT_FAILED,
            )
            if "database" in report.left:
                leave(self, error)
            raise error
        self.say(f"Closed cleanly in {report.seconds:.1f} s.")


async def _to_its_end(kernel: Kernel, each: Pass, stop: asyncio.Event) -> Outcome:
    """Run one pass until it wraps: a run stops at its time budget, the next goes on from there."""
    outcome = Outcome(each.name)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while not outcome.trouble:
            if stop.is_set():
                outcome.trouble = "interrupted"
                break
            running = kernel.run_pass(each.name)
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                continue  # interrupted; close() drains what has started
            if each.totals.error_code:
                outcome.trouble = f"stopped by {each.totals.error_code}, backs off"
            _add(outcome.sums, each.totals)
            if not each.progress.has_more:
                break
    finally:
        stopping.cancel()
    return outcome


def _add(sums: Totals, more: Totals) -> None:
    sums.pages += more.pages
    sums.scanned += more.scanned
    sums.settled += more.settled
    sums.deferred += more.deferred
    sums.failed += more.failed


def _stopped_by_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


@contextlib.contextmanager
def _lock() -> Iterator[bool]:
    """Whether this is the only --once of this installation right now."""
    settings.VAR_DIR.mkdir(parents=True, exist_ok=True)
    with (settings.VAR_DIR / "maintain.lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
