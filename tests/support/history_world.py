"""One history: processes that come and go on one database, what lies outside, what clients saw.

    with World(tables=...) as world:
        world.play([["submit", {"at": 0}], ["kill", {"at": 0}], ...])

Each step is an act by name with plain arguments, so a plan is JSON and can be played again.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

from django.db import DatabaseError, InterfaceError, connection, connections, transaction
from django.db.utils import DEFAULT_DB_ALIAS

from kernel import jobs, schema, usage
from kernel.access import issue_token
from kernel.audit import Actor
from kernel.conf import override
from kernel.delivery import destinations
from kernel.errors import KernelError
from kernel.runtime import maintenance
from tests.support import messages
from tests.support.agent import AMOUNT
from tests.support.faults import Violation
from tests.support.history_acts import ACTS
from tests.support.history_facts import Facts
from tests.support.history_outside import PROVIDER_URL, RECEIVER_URL, SHOP_URL, Outside
from tests.support.history_process import (
    CommitFault,
    Exchange,
    Process,
    commits_by_name,
    quick_connection,
)
from tests.support.history_requests import OLGA
from tests.support.history_time import Clock, plain_code
from tests.support.history_work import STORE

Plan = list[tuple[str, dict[str, Any]]]
ACCOUNT, SERVICE, SHELL = "acme", "gpt", Actor("command", "root")
SCOPES = (
    *("usage:read", "usage:write", "jobs:read", "jobs:write", "approvals:read"),
    *("approvals:decide", "deliveries:read", "deliveries:write"),
)
# Time is moved by hand, so nothing is short for the test's sake; fewer looks at an empty queue.
LIMITS = {
    "job_poll_seconds": 30,
    "notification_poll_seconds": 30,
    "job_retry_seconds": 2,
    "notification_attempts_max": 3,
    "notification_retry_first_seconds": 2,
    "notification_retry_max_seconds": 4,
}
PASSES = (
    *("recovery", "settlement", "approval_expiry", "continuations"),
    *("job_recovery", "notification_recovery"),
)
SCHEMA = schema.SchemaState((), (), ())  # nothing missing, unknown or changed
_FURNITURE: dict[str, tuple[tuple[str, str], dict[str, list[Any]]]] = {}
LEASE_IS_OVER_SECONDS, ROUNDS_MAX = 100, 14
TROUBLE = (KernelError, DatabaseError, InterfaceError)
# What the product asks of rows when a call arrives, beside every verb.
BEHIND = {
    "provider": "SELECT * FROM bz_usage_requests WHERE id = %s",
    "shop": (
        "SELECT t.*, a.state AS grant_state, a.arguments_text AS approved FROM bz_tool_calls t"
        " LEFT JOIN bz_approvals a ON a.id = t.approval_id WHERE t.idempotency_key = %s"
    ),
    "receiver": "SELECT * FROM bz_notifications WHERE id = %s",
}


class Ears(logging.Handler):
    """Hears errors that are no trouble of the database or of a peer."""

    def __init__(self, defects: list[str]):
        super().__init__(logging.ERROR)
        self._defects = defects

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, TROUBLE):
            self._defects.append(f"{record.getMessage()}: {type(error).__name__}: {error}")


class World:
    """The history's state beside the product's; `play` and `end` raise Violation."""

    def __init__(self, *, tables: list[str], seed: int = 0):
        self._tables, self._seed = tables, seed
        self.clock, self.tokens = Clock(), ("", "")  # who asks, and who decides: four eyes
        self.outside: Outside = Outside(self._behind)
        self.plan: Plan = []
        self.processes: list[Process] = []
        self.exchanges: list[Exchange] = []
        self.faults: list[CommitFault] = []
        self.operations: dict[str, bytes] = {}
        self.jobs: dict[str, str] = {}
        self.messages: list[str] = []
        self.decisions: list[tuple[str, str, str]] = []
        self.defects: list[str] = []
        self.counts: Counter[str] = Counter()
        self._open = contextlib.ExitStack()

    # --- its begin and end --------------------------------------------------------------------

    def __enter__(self) -> "World":
        self.open()
        return self

    def open(self) -> None:
        """An empty database with what every history begins with, and a first process."""
        stack = self._open
        stack.enter_context(self._hearing_of_defects())
        stack.enter_context(mock.patch.dict(os.environ, {messages.SECRET_ENV: messages.SECRET}))
        stack.enter_context(override(**LIMITS))
        stack.enter_context(commits_by_name())
        self._beside = quick_connection()
        stack.callback(self._beside.close)
        before, connections[DEFAULT_DB_ALIAS] = connections[DEFAULT_DB_ALIAS], self._beside
        stack.callback(connections.__setitem__, DEFAULT_DB_ALIAS, before)
        stack.enter_context(mock.patch.object(schema, "state", lambda: SCHEMA))
        # Counters for other processes' consoles; nothing depends on them, and they cost a third.
        stack.enter_context(mock.patch.object(maintenance, "record_status", lambda **values: None))
        with self.clock.rules(self._seed):
            self._furnish()
        # From here on a history is the same, whether its furniture was made or copied.
        self.clock.move_to(1.0)
        stack.enter_context(self.clock.rules(self._seed))
        self.facts = Facts(self)
        self.begin_process()

    @contextlib.contextmanager
    def _hearing_of_defects(self) -> Iterator[None]:
        """What the product logs as an error of its own is a defect; nothing is printed."""
        ears, logger = Ears(self.defects), logging.getLogger("kernel")
        before = (logger.propagate, logger.level)
        logger.addHandler(ears)
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.removeHandler(ears)
            logger.propagate, level = before
            logger.setLevel(level)

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Throw away what is left."""
        for process in self.processes:
            process.bury()
        self._open.close()

    def _furnish(self) -> None:
        """What every history begins with: made once by the product's verbs, then copied."""
        vendor = connection.vendor
        with connection.constraint_checks_disabled(), transaction.atomic():
            empty(self._tables)
            for statement, rows in _FURNITURE.get(vendor, ("", {}))[1].items():
                with connection.cursor() as cursor:
                    cursor.executemany(statement, rows)
        if vendor not in _FURNITURE:
            self._set_up()
            _FURNITURE[vendor] = (self.tokens, rows_of(self._tables))
        self.tokens = _FURNITURE[vendor][0]

    def _set_up(self) -> None:
        usage.create_account(account_id=ACCOUNT, name=ACCOUNT, actor=SHELL, cap_nano=10**12)
        usage.add_service(
            service_id=SERVICE,
            base_url=PROVIDER_URL,
            model="upstream-model",
            price_provider="openai",
            price_model="gpt-4o",
            max_output_tokens=1000,
            allow_private=True,
            actor=SHELL,
        )
        issued = {"account_id": ACCOUNT, "scopes": SCOPES, "actor": SHELL}
        self.tokens = (
            issue_token(name="asks", **issued)[1],
            issue_token(name="decides", **issued)[1],
        )
        policy = {"default": "approval", "risk": "medium"}
        jobs.create_tool(
            tool_id="refund",
            url=SHOP_URL,
            parameters=AMOUNT,
            effect="Refund {amount}.",
            policy=policy,
            allow_private=True,
            actor=OLGA,
        )
        jobs.create_route(route_id="refunds", service_id=SERVICE, tools=["refund"], actor=OLGA)
        destinations.create_destination(
            account_id=ACCOUNT,
            destination_id="hooks",
            channel="webhook",
            address=RECEIVER_URL,
            events=["message"],
            secret_env=messages.SECRET_ENV,
            allow_private=True,
            actor=OLGA,
        )

    # --- processes ----------------------------------------------------------------------------

    def begin_process(self) -> Process:
        """A further kernel on the same database."""
        process = Process(number=len(self.processes), clock=self.clock, outside=self.outside)
        self.processes.append(process)
        return process

    @property
    def up(self) -> list[Process]:
        return [process for process in self.processes if process.is_up]

    @property
    def frozen(self) -> list[Process]:
        return [process for process in self.processes if process.is_frozen and not process.is_dead]

    def process(self, at: int) -> Process:
        """One of the processes that are up; a new one where none is."""
        if not self.up:
            self.begin_process()
        return self.up[at % len(self.up)]

    def run(self, seconds: float = 0.0) -> None:
        """Let every process work, and this much time pass for all."""
        until = self.clock.monotonic() + seconds
        while True:
            rests = [rest for process in self.processes if (rest := process.run()) is not None]
            left = until - self.clock.monotonic()
            if left <= 0:
                return
            self.clock.move(min([left, *rests]) + 1e-6)

    # --- what is done -------------------------------------------------------------------------

    def play(self, plan: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Do the steps in order."""
        for name, arguments in plan:
            self.step(name, **arguments)

    def step(self, name: str, **arguments: Any) -> None:
        """Do one act, let everybody work for a moment, and look whether all is still true."""
        self.plan.append((name, arguments))
        if ACTS[name].is_possible(self):
            self.counts[name] += 1
            given = dict(arguments)
            if meets := given.pop("meets", ""):
                what, k = meets.split()
                self.plan_fault(self.process(given["at"]), CommitFault(what, int(k)))
            ACTS[name].do(self, **given)
        self.run(0.2)
        self.facts.check()

    def plan_fault(self, process: Process, fault: CommitFault) -> None:
        """Let a process meet this fault, unless it has another one before it."""
        if process.fault is None:
            process.plan_fault(fault)
            self.faults.append(fault)

    def call(
        self,
        process: Process,
        method: str,
        path: str,
        value: Any = None,
        *,
        raw: bytes = b"",
        key: str = "",
        **about: Any,
    ) -> Exchange:
        """An HTTP call; its answer is remembered, and must stay true."""
        body = raw or (b"" if value is None else json.dumps(value).encode())
        exchange = Exchange(method, path, {"process": process.number, **about})
        self.exchanges.append(exchange)
        token = self.tokens["decision" in about]
        process.call(exchange, body=body, token=token, key=key)
        self.run()
        return exchange

    def verb(self, process: Process, verb: Any, **values: Any) -> None:
        """An operator's act, by the product's verb, in that process."""
        self.task(process, process.kernel.database.in_tx(verb, **values))

    def task(self, process: Process, work: Any) -> "asyncio.Task[Any]":
        """Work of that process; what it may not raise is a defect."""
        task = process.start(work)
        task.add_done_callback(self._done)
        self.run()
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, TROUBLE):
            self.defects.append(f"{type(error).__name__}: {error}")

    def tick(self, process: Process, passes: Iterable[str] = PASSES) -> None:
        """One run of each pass of that process."""
        for name in passes:
            if process.is_up:
                self._start_pass(process, name)
        self.run()

    def _start_pass(self, process: Process, name: str) -> None:
        async def run_pass() -> None:
            await process.kernel.run_pass(name)

        self.task(process, run_pass())

    def end(self) -> None:
        """Kill who is left, let one last process bring everything home, and look at it all."""
        for process in self.processes:
            process.is_frozen = False
        self.run()
        for call in self.outside.held:
            self.outside.answer(call, "ok")
        self.run(0.5)
        self.facts.check()
        for process in self.processes:
            process.kill()
        last = self.begin_process()
        for _ in range(ROUNDS_MAX if self.facts.on_its_way() else 0):
            self.clock.move(LEASE_IS_OVER_SECONDS)
            self.run()
            self.tick(last)
            self.run(3.0)
            self.facts.check()
            if not self.facts.on_its_way():
                break
        self.facts.check_end()

    # --- what is there ------------------------------------------------------------------------

    def rows(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of a SELECT on a connection beside every process: what is committed."""
        with self._beside.cursor() as cursor:
            cursor.execute(statement, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _behind(self, kind: str, key: str) -> dict[str, Any]:
        with plain_code():
            found = self.rows(BEHIND[kind], key)
        return found[0] if found else {}


def with_rows(tables: list[str]) -> list[str]:
    """Those of these tables that are not empty."""
    looks = " UNION ALL ".join(f"SELECT '{name}', EXISTS(SELECT 1 FROM {name})" for name in tables)
    with connection.cursor() as cursor:
        cursor.execute(looks)
        return [name for name, has_rows in cursor.fetchall() if has_rows]


def empty(tables: list[str]) -> None:
    """Delete every row of these tables."""
    for name in with_rows(tables):
        with connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {name}")


def rows_of(tables: list[str]) -> dict[str, list[Any]]:
    """Every row of these tables, by the statement that inserts it again."""
    found = {}
    for name in with_rows(tables):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {name}")
            columns = [f"{connection.ops.quote_name(one[0])}" for one in cursor.description]
            places = ", ".join(["%s"] * len(columns))
            statement = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({places})"
            found[statement] = list(cursor.fetchall())
    return found


__all__ = ["ACTS", "STORE", "Plan", "Violation", "World"]
