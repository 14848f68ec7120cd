"""The registry of background work: what was accepted is known until it is done (G2)."""

import asyncio
import contextvars
import logging
from collections import Counter
from collections.abc import Collection, Coroutine
from typing import Any

from kernel.errors import Unavailable

log = logging.getLogger(__name__)

KINDS = (
    "generation",
    "settlement",
    "maintenance",
    "callback",
    "delivery",
    "approval_webhook",
    "alert",
    "dead_letter",
    "job",
)

# What may still cause a notification; these end first when the kernel closes (G3).
PRODUCERS = frozenset({"generation", "settlement", "maintenance", "job"})

_inside = contextvars.ContextVar("bailing_background", default=False)


class Background:
    """Starts and tracks detached tasks. After `stop_intake` only accepted work starts children."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._open = True
        self.failures: Counter[str] = Counter()

    @property
    def accepting(self) -> bool:
        """Whether work from outside is still taken."""
        return self._open

    def pending(self) -> dict[str, int]:
        """Unfinished tasks by kind; every kind is present."""
        counts = Counter(self._tasks.values())
        return {kind: counts.get(kind, 0) for kind in KINDS}

    def start(
        self, kind: str, work: Coroutine[Any, Any, Any], *, accepted: bool = False
    ) -> asyncio.Task[Any]:
        """Start `work` detached from its caller. Unavailable when intake has stopped (G1).

        `accepted`: it was taken in before, as a row that waits; only its drain may end it.
        """
        if kind not in KINDS:
            work.close()
            raise ValueError(f"no such kind of background work: {kind}")
        if not self._open and not accepted and not _inside.get():
            work.close()
            raise Unavailable("The kernel is closing; it takes no new work.", code="closing")
        context = contextvars.copy_context()
        context.run(_inside.set, True)
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks[task] = kind
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        kind = self._tasks.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures[kind] += 1
            log.error("background work %s failed", kind, exc_info=error)

    def stop_intake(self) -> None:
        """Take no new work from outside; accepted work goes on and may register children."""
        self._open = False

    async def drain(self, deadline: float, *, kinds: Collection[str] = KINDS) -> bool:
        """Wait until nothing of these kinds is left, or `deadline` (loop time); never cancels.

        True if drained.
        """
        loop = asyncio.get_running_loop()
        while waiting := [task for task, kind in self._tasks.items() if kind in kinds]:
            left = deadline - loop.time()
            if left <= 0:
                return False
            await asyncio.wait(waiting, timeout=left)
        return True
