"""Time as a history wants it: one clock for every process, moved by hand; loops that never wait.

A loop runs until it has nothing to do and then stops. Its timers, leases, expiries and retention
follow the clock of the history, so a plan means the same each time it is played.
"""

import asyncio
import contextlib
import os
import random
import selectors
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kernel import clock, ids

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
STEP = timedelta(microseconds=50)  # no two looks at the clock see the same time


class Clock:
    """The time of day, the database's time and the monotonic time of a whole history."""

    def __init__(self) -> None:
        self.at = BEGIN

    def now(self) -> datetime:
        self.at += STEP
        return self.at

    def monotonic(self) -> float:
        """Seconds since the history began; looking does not move it, so that loops can rest."""
        return (self.at - BEGIN).total_seconds()

    def move(self, seconds: float) -> None:
        """Let time pass; what is due then runs when a loop runs."""
        self.at += timedelta(seconds=seconds)

    def move_to(self, seconds: float) -> None:
        """Be this long after the begin, whatever was looked at before."""
        self.at = BEGIN + timedelta(seconds=seconds)

    @contextlib.contextmanager
    def rules(self, seed: int) -> Iterator[None]:
        """Everything in kernel/ sees this clock, and draws ids and delays from `seed`."""
        dice = random.Random(seed)
        state = random.getstate()
        random.seed(seed)
        plain_os = SimpleNamespace(urandom=dice.randbytes, environ=os.environ)
        plain_time = SimpleNamespace(time_ns=lambda: int(self.now().timestamp() * 1e9))
        with (
            mock.patch.object(clock, "now", self.now),
            mock.patch.object(clock, "db_now", self.now),
            mock.patch.object(clock, "monotonic", self.monotonic),
            mock.patch.object(ids, "os", plain_os),
            mock.patch.object(ids, "time", plain_time),
        ):
            try:
                yield
            finally:
                random.setstate(state)


class _NothingArrives(selectors.SelectSelector):
    """No socket is ever ready. Asked to wait, it notes until when and ends the loop's run."""

    loop: "HistoryLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout > 0:
            self.loop.rests_seconds = timeout
            self.loop.stop()
        return []


class HistoryLoop(asyncio.SelectorEventLoop):
    """The event loop of one process."""

    def __init__(self, time: Clock):
        selector = _NothingArrives()
        selector.loop = self
        self._history = time
        self.rests_seconds: float | None = None
        super().__init__(selector)

    def time(self) -> float:
        return self._history.monotonic()

    def run_until_idle(self) -> float | None:
        """Run what is ready and due; the seconds until the next timer, None without one."""
        self.rests_seconds = None
        self.run_forever()
        return self.rests_seconds


@contextlib.contextmanager
def plain_code() -> Iterator[None]:
    """Code that may touch rows: Django refuses them where a loop runs, so for this block none does.

    What a database thread is in production.
    """
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
