"""Celery's tasks: one verb each. A message only says "look"; what is to be done is in the tables.

One kernel per worker process, on an event loop in a thread of its own: a task hands over to it and
ends, so no message is held while a job runs. Losing, doubling or repeating one changes nothing.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import uvloop
from celery import shared_task
from django.conf import settings

from kernel import clock
from kernel.conf import conf
from kernel.errors import Unavailable
from kernel.kernel import CloseReport, Kernel
from kernel.metrics import serve_metrics
from kernel.runtime.wake import JOBS, NOTIFICATIONS

log = logging.getLogger(__name__)

TICK, RUN_JOBS, DELIVER = "bailing.tick", "bailing.run_jobs", "bailing.deliver"
TASK_OF = {JOBS: RUN_JOBS, NOTIFICATIONS: DELIVER}
START_SECONDS_MAX = 30.0
HAND_OVER_SECONDS_MAX = 5.0


class KernelThread:
    """A kernel that runs jobs and sends notifications, beside a program that is not asynchronous.

    `start()` raises what initialize raises. `begin_close()` returns at once and may be called from
    a signal handler; `closed()` waits for the one close and tells how it went (G3, G4).
    """

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="bailing-kernel", daemon=True)
        self._closing: Future[CloseReport] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._heard_at = clock.monotonic()
        self.kernel: Kernel | None = None

    def start(self) -> "KernelThread":
        """Make the kernel and let it claim."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(START_SECONDS_MAX)
        return self

    def tick(self) -> None:
        """Start the passes that are due. Unavailable once closing."""
        self._heard_at = clock.monotonic()
        self._hand_over(lambda kernel: kernel.tick())

    def run_jobs(self) -> None:
        """Look for jobs now."""
        self._hand_over(_wake_worker)

    def deliver(self) -> None:
        """Look for notifications now."""
        self._hand_over(_wake_dispatcher)

    def begin_close(self) -> None:
        """Claim nothing more, release jobs between two steps. Safe to repeat."""
        if self._closing is None:
            self._closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)

    def closed(self) -> CloseReport:
        """How the close went, within the close budget and a little."""
        self.begin_close()
        assert self._closing is not None
        report = self._closing.result(conf.close_budget_seconds + HAND_OVER_SECONDS_MAX)
        if report.drained:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(HAND_OVER_SECONDS_MAX)
        return report

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _start(self) -> None:
        kernel = Kernel(worker=True)
        await kernel.initialize()
        serve_metrics(kernel, address=settings.METRICS_ADDRESS)
        self.kernel = kernel
        self._watch = asyncio.get_running_loop().create_task(self._watch_silence())

    async def _watch_silence(self) -> None:
        """Without ticks (no beat, no broker) overdue passes still start: recovery needs them."""
        while True:
            await asyncio.sleep(conf.tick_silence_seconds / 2)
            if self.kernel and clock.monotonic() - self._heard_at > conf.tick_silence_seconds:
                self.kernel.nudge()

    async def _close(self) -> CloseReport:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        if self.kernel is None:
            return CloseReport(True, 0.0)
        return await self.kernel.close()

    def _hand_over(self, verb: Callable[[Kernel], Coroutine[Any, Any, None]]) -> None:
        if self.kernel is None or self._closing is not None:
            raise Unavailable("This worker is closing.", code="closing")
        work = verb(self.kernel)
        asyncio.run_coroutine_threadsafe(work, self._loop).result(HAND_OVER_SECONDS_MAX)


async def _wake_worker(kernel: Kernel) -> None:
    kernel.worker.wake()


async def _wake_dispatcher(kernel: Kernel) -> None:
    kernel.dispatcher.wake()


# The one kernel of this process; empty until it has started.
_here: list[KernelThread] = []


def start_kernel() -> KernelThread:
    """Start the one kernel of this worker process. Raises what initialize raises."""
    if not _here:
        _here.append(KernelThread().start())
    return _here[0]


def kernel_here() -> KernelThread | None:
    """The kernel of this process, if it has started one."""
    return _here[0] if _here else None


def _the_kernel() -> KernelThread:
    if not _here:
        raise Unavailable("This process runs no kernel.")
    return _here[0]


@shared_task(name=TICK)
def tick() -> None:
    """Start each maintenance pass that is due (B1)."""
    _the_kernel().tick()


@shared_task(name=RUN_JOBS)
def run_jobs() -> None:
    """Claim and run what is due now (D1)."""
    _the_kernel().run_jobs()


@shared_task(name=DELIVER)
def deliver() -> None:
    """Claim and send what is due now (F1)."""
    _the_kernel().deliver()
