"""A process of the sweep: it runs one flow, or replaces the process that ran it.

Forked like a kernel child, with the product's own objects and no HTTP server: clients call the real
ASGI application inside it. It tells the test what clients were answered, as they are answered.
"""

import asyncio
import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import httpx
import uvloop
from django.db import connections
from django.db.utils import DEFAULT_DB_ALIAS

from console.asgi import create_application
from kernel.kernel import Kernel
from tests.support import lives, sweep_clocks
from tests.support.client import Answer
from tests.support.kernel_child import Plan, become, mutate
from tests.support.sweep_flows import FLOWS, Flow
from tests.support.sweep_places import ANSWER, MADE, Boundary, Places

PREPARE, RUN, REPLACE = "prepare", "run", "replace"
PASSES = (
    "recovery",
    "settlement",
    "approval_expiry",
    "continuations",
    "job_recovery",
    "notification_recovery",
    "operations",
)
QUIET_SECONDS, AFTER_FAULT_SECONDS = 30.0, 3.0
LOOK_SECONDS = 0.01


@dataclass(frozen=True)
class SweepPlan(Plan):
    """What a process of the sweep is to do: a part of a flow, and where something happens to it."""

    flow: str = ""
    part: str = RUN
    facts: dict[str, Any] = field(default_factory=dict)
    dies_at: Boundary | None = None
    marks: Boundary | None = None
    read_seconds: int = 30


class Hand:
    """What a flow works with, inside the process: a kernel, clients, the database."""

    def __init__(self, plan: SweepPlan, places: Places, tell: Callable[[tuple[Any, ...]], None]):
        self.plan, self.places, self._tell = plan, places, tell
        self.facts = dict(plan.facts)
        self.kernel = Kernel(owner=f"krn_{plan.part}_{os.getpid()}")
        door = httpx.ASGITransport(create_application(self.kernel), raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=door, base_url="http://product.test")

    @property
    def has_fault(self) -> bool:
        """Whether something is to go wrong in this process."""
        return self.plan.marks is not None

    async def db(self, verb: Callable[..., Any], **values: Any) -> Any:
        """A verb on a database thread."""
        return await self.kernel.database.in_tx(verb, **values)

    async def tried(self, verb: Callable[..., Any], **values: Any) -> Any:
        """The same as a caller who is told what went wrong: the exception, as a value."""
        try:
            return await self.db(verb, **values)
        except Exception as error:
            return error

    # --- clients ------------------------------------------------------------------------------

    async def post(self, operation: str, **fields: Any) -> Answer:
        """POST a chat completion under an operation id."""
        headers = {"Idempotency-Key": operation}
        answer = await self.call(lives.PATH, lives.body(operation, **fields), headers=headers)
        self._tell(("answer", operation, answer))
        return answer

    async def call(
        self,
        path: str,
        body: bytes | None = None,
        *,
        method: str = "",
        token: str = "token",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One call of the JSON door; the process may end before its client hears the answer."""
        headers = {"Content-Type": "application/json", **(headers or {})}
        headers["Authorization"] = f"Bearer {self.facts[token]}"
        method = method or ("GET" if body is None else "POST")
        got = await self._client.request(method, path, content=body, headers=headers)
        self.places.at(ANSWER, MADE)
        return Answer(got.status_code, dict(got.headers), got.content)

    # --- maintenance and work -----------------------------------------------------------------

    async def passes(self, *names: str) -> None:
        """Run these passes to their end, one after another."""
        for name in names or PASSES:
            await self.kernel.run_pass(name)

    def start_work(self) -> None:
        """Claim jobs and notifications from now on."""
        self.kernel.worker.start()
        self.kernel.dispatcher.start()

    async def quiet(self) -> None:
        """Until nothing is under way or due.

        After a fault only for a moment: what this process cannot do, the replacement does.
        """
        end = time.monotonic() + QUIET_SECONDS
        while left := await self._left():
            if self.places.marked_at is not None:
                end = min(end, self.places.marked_at + AFTER_FAULT_SECONDS)
            if time.monotonic() > end:
                assert self.places.marked_at is not None, f"not quiet: {left}"
                return
            self.kernel.worker.wake()
            self.kernel.dispatcher.wake()
            await asyncio.sleep(LOOK_SECONDS)

    async def _left(self) -> Any:
        running = {kind: count for kind, count in self.kernel.background.pending().items() if count}
        if running:
            return running
        if not (self.kernel.worker.is_started or self.kernel.dispatcher.is_started):
            return {}
        return await self.tried(sweep_clocks.due)

    async def recover(self) -> None:
        """What a process does that finds another one's leavings: passes, jobs, messages."""
        if not self.kernel.worker.is_started:  # from then on there are leases of a living owner
            await self.db(sweep_clocks.let_leases_end)
        await self.passes()
        await self.db(sweep_clocks.let_waits_end)
        self.start_work()
        await self.quiet()
        await self.passes("settlement")


def main(plan: SweepPlan, pipe: Connection) -> None:
    """The life of such a process. Ends by itself, by a signal, or with the test."""
    os.setsid()
    become(plan)
    options = connections.settings[DEFAULT_DB_ALIAS]["OPTIONS"]
    if "read_timeout" in options:
        options["read_timeout"] = plan.read_seconds
    threading.Thread(target=_end_with_the_test, args=[pipe], daemon=True).start()
    mutate(plan)
    places = Places(dies_at=plan.dies_at, marks=plan.marks, tell=pipe.send)
    FLOWS[plan.flow].arrange()
    places.around_everything()
    told: tuple[Any, ...]
    try:
        facts = uvloop.run(_live(plan, places, pipe.send))
        told = ("ended", tuple(places.passed), facts)
    except BaseException:
        told = ("broken", traceback.format_exc())
    pipe.send(told)
    os._exit(0)


async def _live(
    plan: SweepPlan, places: Places, tell: Callable[[tuple[Any, ...]], None]
) -> dict[str, Any]:
    hand, flow = Hand(plan, places, tell), FLOWS[plan.flow]
    await hand.kernel.initialize()
    if plan.part == PREPARE:
        await flow.prepare(hand)
    elif plan.part == RUN:
        await _run(hand, flow)
    else:
        await hand.recover()
        await flow.again(hand)
        await hand.recover()
    return hand.facts


async def _run(hand: Hand, flow: Flow) -> None:
    try:
        await flow.act(hand)
    except Exception:
        if not hand.has_fault:
            raise
    await hand.quiet()


def _end_with_the_test(pipe: Connection) -> None:
    try:
        pipe.recv()
    except (EOFError, OSError):
        os._exit(0)
