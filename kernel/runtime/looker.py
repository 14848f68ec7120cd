"""Looks for work: again and again at a pace, sooner when woken, later after failures."""

import asyncio
import logging

from django.db import DatabaseError, InterfaceError

from kernel.errors import RetryTransaction, Unavailable

log = logging.getLogger(__name__)

FAILURES = (DatabaseError, InterfaceError, Unavailable, RetryTransaction)
WAIT_SECONDS_MAX = 60.0


class Looker:
    """Claims what is due, one look at a time. A wake-up carries no truth: each look asks the table.

    Who claims says what a look is (`_claim`), how long the next one may wait (`_pace_seconds`), and
    whether one more follows the stop (`last_look`, G3).
    """

    last_look = False

    def __init__(self) -> None:
        self._stopping = False
        self._wake = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    @property
    def is_started(self) -> bool:
        """Whether it claims now."""
        return self._looking is not None and not self._stopping

    def start(self) -> None:
        """Begin to claim. Once per object."""
        if self._looking is None and not self._stopping:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    def wake(self) -> None:
        """Say that there may be something due: the next look is now. Never waits."""
        self._wake.set()

    def stop_claiming(self) -> None:
        """Claim nothing more, but for a last look where there is one (G3)."""
        self._stopping = True
        self._wake.set()

    async def stopped(self, deadline: float) -> bool:
        """Wait until no claim is on its way, or until `deadline` (loop time)."""
        if self._looking is None:
            return True
        left = deadline - asyncio.get_running_loop().time()
        await asyncio.wait([self._looking], timeout=max(left, 0.0))
        return self._looking.done()

    async def stop(self) -> None:
        """Stop claiming, and wait for the claim that is on its way."""
        self.stop_claiming()
        if self._looking is not None:
            await asyncio.wait([self._looking])

    async def _claim(self) -> None:
        raise NotImplementedError

    def _pace_seconds(self) -> float:
        raise NotImplementedError

    async def _look(self) -> None:
        wait = 0.0
        while not self._stopping:
            wait = await self._look_once(wait)
            await self._pause(wait)
        if self.last_look:
            await self._look_once(wait)

    async def _look_once(self, wait: float) -> float:
        """One look; how long the next one has to wait for this one's failure, 0 if it was well."""
        self._wake.clear()
        try:
            await self._claim()
            return 0.0
        except FAILURES as error:
            wait = min(max(wait * 2, self._pace_seconds()), WAIT_SECONDS_MAX)
            log.warning("%s claimed nothing: %s; next look in %.1f s", self._name, error, wait)
        except Exception:
            wait = WAIT_SECONDS_MAX
            log.exception("%s has a defect; next look in %.0f s", self._name, wait)
        return wait

    async def _pause(self, seconds: float) -> None:
        """Until the next look. After a failure only closing shortens the wait, no wake-up does."""
        loop = asyncio.get_running_loop()
        until = loop.time() + (seconds or self._pace_seconds())
        while not self._stopping and (left := until - loop.time()) > 0:
            waiting = asyncio.ensure_future(self._wake.wait())
            try:
                await asyncio.wait([waiting], timeout=left)
            finally:
                waiting.cancel()
            if not seconds and self._wake.is_set():
                return
            self._wake.clear()

    @property
    def _name(self) -> str:
        return type(self).__name__.lower()
