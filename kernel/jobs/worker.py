"""The worker: claims jobs, runs them, keeps their leases, and stops between two steps (D1, G4).

Messages only wake it: what is to be done it reads from the state store, at least every
`job_poll_seconds`. A worker that dies leaves leases behind; recovery gives its jobs to others.
"""

import asyncio
import logging

from kernel import clock
from kernel.conf import conf
from kernel.errors import CommitOutcomeUnknown, KernelError, LostRace, Unavailable
from kernel.http import Door
from kernel.jobs.agent import Run
from kernel.jobs.claims import Parts
from kernel.runtime import FAILURES, Background, Database, Looker
from kernel.state import Fence, JobRecord, RuntimeStateStore
from kernel.states import JobState
from kernel.transactions import is_lock_wait, short_lock_waits
from kernel.usage.gateway import Gateway

log = logging.getLogger(__name__)

TARGET = "agent"
RETRY_GROWTH = 6  # 5 s, 30 s: what is away for a moment is back before a job is parked


class Worker(Looker):
    """Runs the agent jobs of one kernel, at most `job_count_max` at once.

    `owner` names it in leases. `start()` begins to claim; `stop_claiming()` ends that at once,
    `stopped()` waits for the claim that is on its way. Running jobs are background work of kind
    `job`: the kernel's drain waits for them, and each releases itself between two steps.
    """

    def __init__(
        self,
        *,
        database: Database,
        background: Background,
        gateway: Gateway,
        door: Door,
        store: RuntimeStateStore,
        owner: str,
    ):
        super().__init__()
        self.owner = owner
        self._database, self._background, self._store = database, background, store
        self._parts = Parts(
            database=database,
            gateway=gateway,
            door=door,
            store=store,
            is_closing=lambda: self._stopping,
        )
        self._running: dict[Fence, Run] = {}
        self._beating: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        """Jobs that this worker runs now."""
        return len(self._running)

    async def stop(self) -> None:
        """Stop claiming, and end the heartbeats when no job is left. After the drain."""
        await super().stop()
        if self._beating is not None and not self._running:
            self._beating.cancel()
            await asyncio.wait([self._beating])

    # --- claiming -----------------------------------------------------------------------------

    def _pace_seconds(self) -> float:
        pace: float = conf.job_poll_seconds
        return pace

    async def _claim(self) -> None:
        free = conf.job_count_max - len(self._running)
        if free < 1:
            return
        held_until = clock.monotonic() + conf.job_lease_seconds
        jobs = await self._database.in_tx(
            self._store.claim, owner=self.owner, target=TARGET, limit=free
        )
        for job in jobs:
            if self._stopping:
                await self._give_up(job, retry_seconds=0.0)
            else:
                self._start(job, held_until=held_until)

    def _start(self, job: JobRecord, *, held_until: float) -> None:
        run = Run(self._parts, job, held_until=held_until)
        try:
            self._background.start("job", self._run(run))
        except Unavailable:  # intake stopped just now: the lease ends, others take it
            log.warning("job %s was claimed while the kernel closes", job.id)
            return
        self._running[job.fence] = run
        if self._beating is None or self._beating.done():
            self._beating = asyncio.get_running_loop().create_task(self._beat())

    # --- running ------------------------------------------------------------------------------

    async def _run(self, run: Run) -> None:
        job = run.job
        try:
            await run.go()
        except LostRace as error:
            log.info("job %s: %s", job.id, error.message)
            if error.error_code != "lost_lease":
                await self._give_up(job, retry_seconds=conf.job_retry_seconds)
        except FAILURES as error:
            log.warning("job %s is released: %s", job.id, type(error).__name__)
            await self._give_up(
                job,
                retry_seconds=retry_seconds(attempts=job.attempts),
                interrupted=self._why(error),
            )
        except Exception as error:
            # Again and again it would fail the same way; a queue must move on.
            await self._fail(run, error)
            raise
        finally:
            self._running.pop(job.fence, None)
            self._wake.set()

    def _why(self, error: Exception) -> str:
        """What kept a run from going on, where that may be the job's own; '' where it is not.

        A database that is away, or a kernel that closes, holds every job up: none is to blame.
        """
        concerns_all = self._stopping or isinstance(error, CommitOutcomeUnknown)
        if concerns_all or not isinstance(error, Unavailable):
            return ""
        return f"Its run could not go on: {error.message} {error.way_out}".strip()

    async def _give_up(
        self, job: JobRecord, *, retry_seconds: float, interrupted: str = ""
    ) -> None:
        """Release a job, as far as the database lets us; else its lease ends by itself."""
        try:
            await self._database.in_tx(
                self._store.release,
                fence=job.fence,
                retry_seconds=retry_seconds,
                interrupted=interrupted,
            )
        except (*FAILURES, LostRace) as error:
            log.warning("job %s was not released: %s", job.id, type(error).__name__)

    async def _fail(self, run: Run, error: Exception) -> None:
        # The job's account reads this: of a defect only its kind, the log has the rest.
        code, text = "internal", type(error).__name__
        if isinstance(error, KernelError):
            code, text = error.error_code, error.message
        try:
            await self._database.in_tx(
                self._store.finish,
                fence=run.fence,
                state=JobState.FAILED,
                error_code=code,
                error_text=text,
                also=run.ended(code, "The run ended with an error of this product."),
            )
        except (*FAILURES, LostRace) as second:
            log.warning("the end of job %s was not saved: %s", run.job.id, type(second).__name__)

    # --- leases -------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Renew the leases of all running jobs, in one transaction each time."""
        while self._running:
            # Twice within a lease, also where somebody made the lease short.
            await asyncio.sleep(min(conf.job_heartbeat_seconds, conf.job_lease_seconds / 3))
            try:
                await self._renew(sorted(self._running, key=lambda fence: fence.job_id))
            except Exception:
                log.exception("renewing leases has a defect")

    async def _renew(self, fences: list[Fence]) -> None:
        if not fences:
            return
        held_until = clock.monotonic() + conf.job_lease_seconds
        beat = self._store.heartbeat if len(fences) > 1 else self._beat_briefly
        try:
            held = await self._database.in_tx(beat, fences=fences)
        except FAILURES as error:
            # The next effect asks the database anyway, under the fence.
            log.warning("leases were not renewed: %s", type(error).__name__)
            if is_lock_wait(error) and len(fences) > 1:
                for fence in fences:  # the job that somebody has locked costs no other its lease
                    await self._renew([fence])
            return
        for fence in fences:
            if (run := self._running.get(fence)) is None:
                continue
            if fence.job_id in held:
                run.held_until = held_until
            else:
                run.lost = True

    def _beat_briefly(self, *, fences: list[Fence]) -> set[str]:
        with short_lock_waits():
            return self._store.heartbeat(fences=fences)


def retry_seconds(*, attempts: int) -> float:
    """How long a job rests whose run could not go on, after this many attempts."""
    longest: float = conf.job_retry_max_seconds
    return min(conf.job_retry_seconds * RETRY_GROWTH ** max(attempts - 1, 0), longest)
