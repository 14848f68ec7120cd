"""The kernel: the composition root. initialize, migrate, tick, close, progress (G1)."""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from typing import Any

from kernel import audit, clock, schema
from kernel.access.signing_keys import purge_receipts
from kernel.access.tokens import Caller, authenticate
from kernel.approvals.continuations import Answer, continuation_page, decide_and_carry
from kernel.approvals.decisions import Decision, expire_page
from kernel.audit.export import AuditCopy, copy_from_environment
from kernel.conf import conf
from kernel.delivery.channels import channels_of
from kernel.delivery.destinations import refuse_executors
from kernel.delivery.dispatcher import Dispatcher
from kernel.delivery.recovery import reclaim_page
from kernel.errors import Unavailable
from kernel.http import Door
from kernel.ids import new_id
from kernel.jobs.recovery import recovery_page
from kernel.jobs.submissions import submit_job
from kernel.jobs.worker import Worker
from kernel.operations import Operations
from kernel.retention import BODIES, POLICIES, pass_name
from kernel.runtime import Background, Database, Pass
from kernel.runtime.background import PRODUCERS
from kernel.runtime.maintenance import PageReport, Progress
from kernel.session import check_session
from kernel.state import DatabaseStore, JobRecord, RuntimeStateStore
from kernel.state.protocol import ENSURE_REPLAY
from kernel.transactions import transaction
from kernel.usage.gateway import Gateway
from kernel.usage.recovery import expiry_page
from kernel.usage.settlement import settlement_page

log = logging.getLogger(__name__)

ONCE = "once"  # ids of kernels of `maintain --once` begin with it: no sign of life follows theirs


@transaction
def record_pass_asked(*, name: str, actor: audit.Actor) -> None:
    """Audit that somebody asked for a pass now. AlreadyDone for a form that was sent before."""
    audit.append_in_tx(actor=actor, action="pass.run", kind="pass", object_id=name)


def audit_copy_page(copy: AuditCopy) -> Any:
    """A page of the pass that copies the audit to a file (M2)."""

    def page(*, cursor: Any = None, limit: int) -> PageReport:
        count = copy.copy_next(limit=limit)
        more = count if count == limit else None
        return PageReport(scanned=count, settled=count, cursor=more)

    return page


@dataclass(frozen=True, slots=True)
class CloseReport:
    """How close() went: whether everything drained, and what is left by kind."""

    drained: bool
    seconds: float
    left: dict[str, int] = field(default_factory=dict)


class Kernel:
    """One kernel instance: its own usage owner, database threads, background work and passes.

    Made inside a running event loop. `loop` lets other threads hand work to it. With `worker` it
    also runs agent jobs and sends notifications; without, it leaves both to other processes.
    """

    def __init__(
        self, *, owner: str = "", worker: bool = False, store: RuntimeStateStore | None = None
    ) -> None:
        self.owner = owner or new_id("krn")
        self.store: RuntimeStateStore = store or DatabaseStore()
        self._runs_jobs = worker
        self.background = Background()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._closed = False
        self.drain_timeouts = 0
        self._tokens: dict[bytes, tuple[float, Caller]] = {}

    async def initialize(self) -> None:
        """Check the schema, start the database threads and the passes. Never migrates (H2).

        Raises Unavailable when the schema does not fit, naming db_init, when the database overrides
        what its sessions ask for, and after close began (G1).
        Where only 0066 or 0067 is absent, the paths that need them are unavailable (H3). Raises it
        too over a store without the jobs of the database while a destination needs an executor
        (M1); one that another process makes later is met at the next start.
        """
        if self._closing:
            raise Unavailable("This kernel is closing; make a new one.", code="closing")
        if self.loop is not None:
            raise RuntimeError("this kernel is initialized already")
        self.database = Database()
        self.door = Door()
        self.gateway = Gateway(
            owner=self.owner, database=self.database, background=self.background, door=self.door
        )
        self._make_passes()
        self.worker = Worker(
            database=self.database,
            background=self.background,
            gateway=self.gateway,
            door=self.door,
            store=self.store,
            owner=self.owner,
        )
        self.dispatcher = Dispatcher(
            database=self.database,
            background=self.background,
            channels=channels_of(door=self.door),
            owner=self.owner,
        )
        try:
            await self._check_schema()
        except BaseException:
            await self._release()
            raise
        self.loop = asyncio.get_running_loop()
        if self._runs_jobs:
            self.worker.start()
            self.dispatcher.start()

    def _make_passes(self) -> None:
        self.settlement = self._pass(
            "settlement",
            settlement_page,
            conf.settlement_interval_seconds,
            conf.settlement_page_rows,
        )
        self.recovery = self._pass(
            "recovery", expiry_page, conf.recovery_interval_seconds, conf.recovery_page_rows
        )
        self.continuations = self._pass(
            "continuations",
            continuation_page(store=self.store),
            conf.continuation_interval_seconds,
            conf.continuation_page_rows,
        )
        self.approval_expiry = self._pass(
            "approval_expiry",
            expire_page,
            conf.approval_expiry_interval_seconds,
            conf.continuation_page_rows,
        )
        self.job_recovery = self._pass(
            "job_recovery",
            recovery_page(store=self.store),
            conf.job_recovery_interval_seconds,
            conf.job_recovery_page_rows,
        )
        self.receipts = self._pass(
            "receipts", purge_receipts, conf.purge_interval_seconds, conf.recovery_page_rows
        )
        self.notification_recovery = self._pass(
            "notification_recovery",
            reclaim_page,
            conf.recovery_interval_seconds,
            conf.recovery_page_rows,
        )
        self.operations = Operations(owner=self.owner, store=self.store)
        self.operation_work = self._pass(
            "operations",
            self.operations.page,
            conf.operation_interval_seconds,
            conf.operation_page_rows,
        )
        purges = self._purges()
        self.purge = purges.pop(BODIES)
        self.passes: tuple[Pass, ...] = (
            self.recovery,
            self.settlement,
            self.purge,
            self.approval_expiry,
            self.continuations,
            self.job_recovery,
            self.notification_recovery,
            self.operation_work,
            self.receipts,
            *purges.values(),
        )
        if (copy := copy_from_environment()) is not None:
            page, rows = audit_copy_page(copy), conf.audit_copy_page_rows
            self.passes += (self._pass("audit_copy", page, conf.audit_copy_interval_seconds, rows),)

    def _purges(self) -> dict[str, Pass]:
        """One pass per kind of content that retention removes (A17)."""
        interval, rows = conf.purge_interval_seconds, conf.recovery_page_rows
        return {
            policy.kind: self._pass(pass_name(policy), policy.run, interval, rows)
            for policy in POLICIES
        }

    async def _check_schema(self) -> None:
        await self.database.in_tx(check_session)
        found = await self.database.in_tx(schema.state)
        if not found.usable:
            raise Unavailable(
                f"The database schema is not ready: {found}.",
                code="schema_not_ready",
                next_action=found.way_out,
            )
        if ENSURE_REPLAY not in self.store.capabilities:
            await self.database.in_tx(refuse_executors)
        if found.missing:
            log.warning("some paths are unavailable until db_init applies %s", found.missing)

    def _pass(self, name: str, page: Any, interval: float, rows: int) -> Pass:
        return Pass(
            name=name,
            owner=self.owner,
            database=self.database,
            page=page,
            interval_seconds=interval,
            page_rows=rows,
            budget_seconds=conf.settlement_budget_seconds,
        )

    @staticmethod
    def migrate() -> tuple[str, ...]:
        """Bring the schema up to this code; the same as `manage.py db_init` (H2)."""
        return schema.migrate()

    async def tick(self) -> None:
        """Start each pass that is due, as background work.

        The first tick starts all of them (B1).
        """
        if self._closing:
            raise Unavailable("This kernel is closing; it takes no tick.", code="closing")
        self._start_passes([each for each in self.passes if each.due()])

    def nudge(self) -> None:
        """Called by HTTP traffic: start passes that no tick started in time (B1). Never waits."""
        if not self._closing:
            self._start_passes([each for each in self.passes if each.overdue()])

    def run_pass(self, name: str) -> asyncio.Task[Any]:
        """Start one pass now, or join the running one. ValueError for an unknown name."""
        for each in self.passes:
            if each.name == name:
                return self._start_pass(each)
        raise ValueError(f"no pass named {name}")

    async def run_pass_for(self, name: str, *, actor: audit.Actor) -> asyncio.Task[Any]:
        """The same as a person's act: audited first, so that one form starts one pass (L2)."""
        await self.database.in_tx(record_pass_asked, name=name, actor=actor)
        return self.run_pass(name)

    def _start_passes(self, passes: list[Pass]) -> None:
        for each in passes:
            self._start_pass(each)

    def _start_pass(self, one: Pass) -> asyncio.Task[Any]:
        kind = "settlement" if one is self.settlement else "maintenance"
        task = self.background.start(kind, one.run())
        if one in (self.continuations, self.job_recovery):
            task.add_done_callback(lambda _: self.worker.wake())  # what they queued is due now
        return task

    async def authenticate(self, secret: str) -> Caller:
        """The caller of an API token; remembered for `token_cache_seconds`. Unauthorized."""
        key = secret.encode(errors="replace")
        known = self._tokens.get(key)
        if known and known[0] > clock.monotonic():
            return known[1]
        caller = await self.database.in_tx(authenticate, secret=secret)
        if len(self._tokens) > 10_000:
            self._tokens.clear()
        self._tokens[key] = (clock.monotonic() + conf.token_cache_seconds, caller)
        return caller

    def get_reconciliation_progress(self) -> Progress:
        """The latest settlement page, from memory: counters only (B6)."""
        return self.settlement.progress

    def get_continuation_progress(self) -> Progress:
        """The latest continuation page, from memory: counters only (G1)."""
        return self.continuations.progress

    async def decide(self, order: Decision) -> Answer:
        """Record a decision and carry it through; whoever waits for its job looks at once (C2-C4).

        The one function behind every door. Errors: see `approvals.decide`.
        """
        answer: Answer = await self.database.in_tx(decide_and_carry, order=order, store=self.store)
        self.worker.wake()
        self.dispatcher.wake()
        return answer

    async def submit_job(self, **values: Any) -> tuple[JobRecord, bool]:
        """Queue a job, or find the one it repeats (D1). Arguments and errors: `jobs.submit_job`."""
        found: tuple[JobRecord, bool] = await self.database.in_tx(
            submit_job, store=self.store, **values
        )
        self.worker.wake()
        return found

    async def close(self, drain_seconds: float | None = None) -> CloseReport:
        """Stop intake, drain started work, close resources: one shared deadline (G3).

        What may still cause a notification ends first, then what sends them takes a last look.
        On a timeout nothing is torn down: unfinished work stays on this instance, the report says
        what is left, and close can be called again.
        """
        budget = conf.close_budget_seconds if drain_seconds is None else drain_seconds
        started = time.monotonic()
        self._closing = True
        self.background.stop_intake()
        if self._closed or self.loop is None:
            return CloseReport(True, 0.0)
        self.worker.stop_claiming()
        self.operations.stop()
        deadline = asyncio.get_running_loop().time() + budget
        looked = await self.worker.stopped(deadline)
        drained = await self.background.drain(deadline, kinds=PRODUCERS)
        self.dispatcher.stop_claiming()
        looked = await self.dispatcher.stopped(deadline) and looked
        drained = await self.background.drain(deadline) and drained and looked
        if drained:
            await self.gateway.stop_renewing()
            await self._give_back(deadline)
        drained = await self.database.drain(deadline) and drained
        if not drained:
            self.drain_timeouts += 1
            left = {kind: count for kind, count in self.background.pending().items() if count}
            if self.database.pending:
                left["database"] = self.database.pending
            if not (left or looked):
                left["claims"] = 1  # a look for something to do is all that is on its way
            return CloseReport(False, time.monotonic() - started, left)
        await self._release()
        self._closed = True
        return CloseReport(True, time.monotonic() - started)

    async def _give_back(self, deadline: float) -> None:
        """Let another process go on with our operations at once; else their leases end."""
        if self.operations.holds:
            left = deadline - asyncio.get_running_loop().time()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self.database.in_tx(self.operations.release), max(0.0, left))

    async def _release(self) -> None:
        await self.worker.stop()
        await self.dispatcher.stop()
        await self.gateway.stop_renewing()
        await self.door.aclose()
        self.database.close()
