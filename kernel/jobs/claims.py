"""One claim of one job: what may be written under its fence, and how it ends (D1).

Every end is one transaction of the state store and raises Stopped; LostRace `lost_lease` says that
another claim holds the job by now.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from kernel import clock
from kernel.errors import CommitOutcomeUnknown
from kernel.http import Door
from kernel.runtime import Database
from kernel.state import JobRecord, RuntimeStateStore
from kernel.usage.gateway import Gateway

log = logging.getLogger(__name__)

CONFIRMATIONS_MAX = 3


class Stopped(Exception):
    """The run ends here: the job was finished, released, or waits. Control flow, no error."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run works with. `is_closing` says whether the kernel wants running jobs to stop."""

    database: Database
    gateway: Gateway
    door: Door
    store: RuntimeStateStore
    is_closing: Callable[[], bool]


class Claim:
    """The fence of one claim and its uses.

    `lost` is set when a heartbeat finds the lease gone. `held_until` (clock.monotonic) is when the
    lease ends as far as this process knows: a heartbeat moves it on.
    """

    def __init__(self, parts: Parts, job: JobRecord, *, held_until: float):
        self.parts, self.job, self.fence = parts, job, job.fence
        self.held_until = held_until
        self.lost = False
        self._began = clock.monotonic()

    @property
    def seconds(self) -> float:
        """How long this claim has run; what was spent waiting for people is not in it."""
        return clock.monotonic() - self._began

    async def stop_if_asked(self) -> None:
        """Between two steps: stop when the lease is lost, release when the kernel closes (G3, G4).

        Interrupted is not failed: the job is due at once, for whoever claims next.
        """
        if self.lost:
            raise Stopped
        if self.parts.is_closing():
            await self.release(0.0)

    async def confirm_fence(self) -> None:
        """LostRace unless this claim still holds the job: asked right before a model request."""
        await self.sure(self.parts.store.guard, fence=self.fence, act=nothing)

    async def end(
        self,
        state: str,
        *,
        result_text: str = "",
        code: str = "",
        why: str = "",
        also: Callable[[], None] | None = None,
    ) -> NoReturn:
        """running -> done, failed or refused, together with `also`."""
        await self.sure(
            self.parts.store.finish,
            fence=self.fence,
            state=state,
            result_text=result_text,
            error_code=code,
            error_text=why,
            also=also,
        )
        raise Stopped

    async def release(self, retry_seconds: float) -> NoReturn:
        """running -> queued; the attempt is not counted."""
        await self.sure(self.parts.store.release, fence=self.fence, retry_seconds=retry_seconds)
        raise Stopped

    async def wait(self, reason: str, *, also: Callable[[], None] | None = None) -> NoReturn:
        """running -> waiting, together with what it waits for."""
        await self.sure(
            self.parts.store.wait, fence=self.fence, reason=reason, also=also or nothing
        )
        raise Stopped

    async def read(self, read: Callable[..., Any], **values: Any) -> Any:
        """Ask the database on a database thread."""
        return await self.parts.database.in_tx(read, **values)

    async def sure(self, verb: Callable[..., Any], **values: Any) -> Any:
        """Run a verb that may be repeated: after a lost acknowledgement it is asked again.

        Where the commit had landed, a verb that ends the claim finds it ended (LostRace).
        """
        for _ in range(CONFIRMATIONS_MAX - 1):
            try:
                return await self.parts.database.in_tx(verb, **values)
            except CommitOutcomeUnknown:
                log.warning("a commit of job %s was not acknowledged; asking again", self.job.id)
        return await self.parts.database.in_tx(verb, **values)


def nothing() -> None:
    """Nothing else moves together with the job."""
