"""One process of a history: a whole kernel on a loop and a database connection of its own.

Everything runs in the test's thread. A verb is one callback of the loop, so nothing is shared but
the database. At each commit the process may be killed, or the acknowledgement may be lost; a killed
process does nothing any more: no answer, no write, no call.
"""

import asyncio
import contextlib
import contextvars
import functools
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar
from unittest import mock

from django.db import OperationalError, connections
from django.db.utils import DEFAULT_DB_ALIAS

from kernel import kernel as composition
from kernel import transactions
from kernel.api.handler import ApiHandler
from kernel.errors import Unavailable
from kernel.kernel import Kernel
from tests.support.history_outside import Outside
from tests.support.history_time import Clock, HistoryLoop, plain_code

T = TypeVar("T")
KILL_BEFORE, KILL_AFTER = "kill_before", "kill_after"
LANDED, VANISHED = "landed", "vanished"
FAULTS = (KILL_BEFORE, KILL_AFTER, LANDED, VANISHED)


class Killed(BaseException):
    """The process ends here. Nothing in the product catches it."""


@dataclass
class CommitFault:
    """What happens at the `left`-th commit from now; `verb` is where it did.

    The process counts its commits apart from `left`, so that a fault that was due is known to have
    been due, whether it fired or not.
    """

    what: str
    left: int
    verb: str = ""
    process: "Process | None" = None
    due_at: int = 0  # the number of that commit in its process

    @property
    def fired(self) -> bool:
        return self.verb != ""

    @property
    def is_due(self) -> bool:
        """Whether its commit has come; a process may die or the history end before."""
        return self.process is not None and self.process.commits >= self.due_at


@dataclass
class Exchange:
    """One HTTP call of a client and what it was answered. `status` 0: nothing, or not the end."""

    method: str
    path: str
    about: dict[str, Any]
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_whole: bool = False


class InlineDatabase:
    """The bridge of kernel/runtime/database.py, on the loop's own thread."""

    threads = 1

    def __init__(self, process: "Process"):
        self._process = process
        self._running: set[asyncio.Future[Any]] = set()
        self._closed = False

    @property
    def pending(self) -> int:
        return len(self._running)

    async def in_tx(self, verb: Callable[..., T], **kwargs: Any) -> T:
        """The verb's outcome; shielded, like the real one."""
        if self._closed:
            raise Unavailable("The kernel is closed.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        work = functools.partial(contextvars.copy_context().run, verb, **kwargs)
        loop.call_soon(self._run, future, work)
        return await asyncio.shield(future)

    def _run(self, future: "asyncio.Future[T]", work: Callable[[], T]) -> None:
        if self._process.is_dead:
            return
        try:
            with plain_code():
                outcome, error = work(), None
        except Killed:
            self._process.loop.stop()
            return
        except BaseException as raised:
            outcome, error = None, raised
        if self._process.is_dead or future.done():
            return
        if error is None:
            future.set_result(outcome)  # type: ignore[arg-type]  # an outcome, as there is no error
        else:
            future.set_exception(error)
            future.exception()

    async def drain(self, deadline: float) -> bool:
        loop = asyncio.get_running_loop()
        while self._running:
            left = deadline - loop.time()
            if left <= 0:
                return False
            await asyncio.wait([asyncio.shield(one) for one in self._running], timeout=left)
        return True

    def close(self) -> None:
        self._closed = True


class Process:
    """A kernel that runs jobs and sends notifications, its HTTP door, and its end."""

    current: "Process | None" = None  # whose code runs now

    def __init__(self, *, number: int, clock: Clock, outside: Outside):
        self.number, self._clock = number, clock
        self.loop = HistoryLoop(clock)
        self.loop.set_exception_handler(lambda loop, context: None)
        self.is_dead = self.is_frozen = self.is_closed = False
        self.fault: CommitFault | None = None
        self.commits = 0  # that it has begun, with a fault or without
        self.verb = ""
        self._tasks: set[asyncio.Task[Any]] = set()
        self.connection = self._connect()
        self._handler = ApiHandler()
        self.kernel = Kernel(owner=f"krn_{number}", worker=True)
        door = outside.door(self)
        with (
            mock.patch.object(composition, "Database", lambda: InlineDatabase(self)),
            mock.patch.object(composition, "Door", lambda: door),
        ):
            started = self.start(self.kernel.initialize())
            self.run()
        if not self.is_dead:
            started.result()

    def _connect(self) -> Any:
        connection = quick_connection()
        connection.settings_dict |= {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
        commit, connect = connection._commit, connection.connect
        connection._commit = lambda: self._commit(commit)  # type: ignore[method-assign]
        connection.connect = lambda: self._reconnect(connect)  # type: ignore[method-assign]
        return connection

    # --- its life -----------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether it takes calls."""
        return not (self.is_dead or self.is_frozen or self.is_closed)

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """This process's connection is the thread's, as long as its code runs."""
        before, connections[DEFAULT_DB_ALIAS] = connections[DEFAULT_DB_ALIAS], self.connection
        outer, Process.current = Process.current, self
        try:
            yield
        finally:
            Process.current = outer
            connections[DEFAULT_DB_ALIAS] = before

    def run(self) -> float | None:
        """Run until it has nothing to do; the seconds until its next timer."""
        if self.is_dead or self.is_frozen:
            return None
        with self.here():
            return self.loop.run_until_idle()

    def start(self, work: Any) -> "asyncio.Task[Any]":
        """A task of its loop; runs when the loop runs."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def call(self, exchange: Exchange, *, body: bytes = b"", token: str, key: str = "") -> Exchange:
        """Send an HTTP call to its door; the exchange fills while the loop runs."""
        headers = [(b"authorization", f"Bearer {token}".encode())]
        headers += [(b"content-type", b"application/json")] if body else []
        headers += [(b"idempotency-key", key.encode())] if key else []
        scope = {
            "type": "http",
            "method": exchange.method,
            "path": exchange.path,
            "raw_path": exchange.path.encode(),
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 50000),
            "server": ("product.test", 80),
            "scheme": "http",
            "http_version": "1.1",
            "kernel": self.kernel,
        }
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                pairs = message["headers"]
                exchange.headers = {k.decode().lower(): v.decode() for k, v in pairs}
            else:
                exchange.body += message.get("body", b"")
                exchange.is_whole = not message.get("more_body", False)

        self.start(self._handler(scope, receive, send))
        return exchange

    def plan_fault(self, fault: CommitFault) -> None:
        """Meet this fault, counted from now."""
        self.fault = fault
        fault.process, fault.due_at = self, self.commits + fault.left

    def kill(self) -> None:
        """SIGKILL: nothing it began is ended, its connection is gone."""
        self.is_dead = True
        self._break_connection()

    def bury(self) -> None:
        """Throw away its memory."""
        self.is_dead = True
        self.loop.set_task_factory(_no_more)
        for _ in range(10):
            waiting = asyncio.all_tasks(self.loop)
            if not waiting:
                break
            for task in waiting:
                task.cancel()
            with self.here():
                self.loop.run_until_idle()
        with contextlib.suppress(Exception):
            self.connection.close()
        self.loop.close()

    # --- its commits --------------------------------------------------------------------------

    def _commit(self, commit: Callable[[], None]) -> None:
        if self.is_dead:
            raise Killed
        self.commits += 1
        fault = self.fault
        if fault is None:
            commit()
            return
        fault.left -= 1
        if fault.left > 0:
            commit()
            return
        self.fault = None
        if fault.what in (KILL_AFTER, LANDED):
            commit()
        self._break_connection()
        fault.verb = self.verb or "?"
        if fault.what in (KILL_BEFORE, KILL_AFTER):
            self.is_dead = True
            raise Killed
        raise OperationalError(2013, "Lost connection to server during query")

    def _reconnect(self, connect: Callable[[], None]) -> None:
        if self.is_dead:
            raise Killed
        connect()

    def _break_connection(self) -> None:
        raw = self.connection.connection
        if raw is None:
            return
        if self.connection.vendor == "sqlite":
            raw.rollback()
            return
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(raw.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)


def _no_more(loop: asyncio.AbstractEventLoop, work: Any, **how: Any) -> Any:
    """A dead process begins nothing, not even while it is taken apart."""
    work.close()
    raise RuntimeError("this process is dead")


def quick_connection() -> Any:
    """A connection to the run's database that does not wait for the disk: no power fails here."""
    connection = connections.create_connection(DEFAULT_DB_ALIAS)
    connection.settings_dict = {**connection.settings_dict}
    if connection.vendor == "sqlite":
        options = connection.settings_dict["OPTIONS"]
        quick = options["init_command"].replace("synchronous=FULL", "synchronous=OFF")
        connection.settings_dict["OPTIONS"] = {**options, "init_command": quick}
    return connection


@contextlib.contextmanager
def commits_by_name() -> Iterator[None]:
    """Each process knows which verb its commit belongs to."""
    real = transactions.commit_unit

    def commit_unit(name: str, attempt: Any, block: Callable[[], Any]) -> Any:
        process = Process.current
        if process is None:
            return real(name, attempt, block)
        before, process.verb = process.verb, name
        try:
            return real(name, attempt, block)
        finally:
            process.verb = before

    with mock.patch.object(transactions, "commit_unit", commit_unit):
        yield
