"""The only bridge from async code to the database: threads that keep their connections."""

import asyncio
import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from django.db import connection, connections

from kernel.conf import conf
from kernel.errors import Unavailable

R = TypeVar("R")
LONG_SECONDS = 24 * 3600


class Database:
    """Runs verbs on database threads; knows what still runs, so that close() waits for it (G3)."""

    def __init__(self, *, threads: int | None = None):
        count = threads or conf.database_threads
        self.threads = 1 if connection.vendor == "sqlite" else count
        self._executor = ThreadPoolExecutor(
            self.threads, thread_name_prefix="bailing-db", initializer=_keep_connection
        )
        self._running: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def pending(self) -> int:
        """Verbs queued or running."""
        return len(self._running)

    async def in_tx(self, verb: Callable[..., R], **kwargs: Any) -> R:
        """Await `verb(**kwargs)` on a database thread.

        Shielded: a cancelled caller neither drops a queued write nor stops a running commit; for
        the caller a cancel means "unknown". Raises Unavailable once closed, else what the verb
        raises.
        """
        if self._closed:
            raise Unavailable("The kernel is closed.")
        context = contextvars.copy_context()
        future = self._executor.submit(functools.partial(context.run, verb, **kwargs))
        with self._lock:
            self._running.add(future)
        future.add_done_callback(self._forget)
        return await asyncio.shield(asyncio.wrap_future(future))

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._running.discard(future)

    async def drain(self, deadline: float) -> bool:
        """Wait for running verbs until `deadline` (event-loop time). True when none is left."""
        loop = asyncio.get_running_loop()
        while self._running:
            left = deadline - loop.time()
            if left <= 0:
                return False
            with self._lock:
                waiting = [asyncio.wrap_future(future) for future in self._running]
            await asyncio.wait([asyncio.shield(f) for f in waiting], timeout=left)
        return True

    def close(self) -> None:
        """Close every thread's connection and stop the threads. Only after drain() said True."""
        if self._closed:
            return
        self._closed = True
        barrier = threading.Barrier(self.threads)
        for _ in range(self.threads):
            self._executor.submit(_close_connections, barrier)
        self._executor.shutdown(wait=True)


def allow_long_statements() -> None:
    """For migrations and checks in this thread: no read timeout, unlike for the verbs.

    A cut connection would not stop the server; the statement would go on, holding the lock.
    """
    options = connection.settings_dict.get("OPTIONS", {})
    if "read_timeout" in options:
        connection.close()
        longer = {**options, "read_timeout": LONG_SECONDS, "write_timeout": LONG_SECONDS}
        connection.settings_dict = {**connection.settings_dict, "OPTIONS": longer}


def _keep_connection() -> None:
    # Web threads close after each request (CONN_MAX_AGE=0); these keep theirs and heal it per verb.
    connection.settings_dict = {
        **connection.settings_dict,
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
    }


def _close_connections(barrier: threading.Barrier) -> None:
    with contextlib.suppress(threading.BrokenBarrierError):
        barrier.wait(timeout=5)
    connections.close_all()
