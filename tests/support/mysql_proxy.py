"""A MySQL proxy for tests: between a client and the server, it loses, holds or delays a COMMIT.

    with MysqlProxy("127.0.0.1", server_port) as proxy:
        rule = proxy.on_commit(containing=r"bz_usage_requests.*'dispatched'", action="withhold_ok")
        ...                       # the client under test connects to 127.0.0.1, proxy.port
        rule.wait_fired()
        assert rule.fired_count == 1

Actions (`on_commit` and `on_statement`); the client sees a lost connection (2013) where it says so:

    withhold_ok       the server committed and said OK; the client sees 2013
    drop_request      the COMMIT never reaches the server, which rolls back; the client sees 2013
    hold_ok           the server committed; its OK waits for `seconds`, or for rule.release()
    hold_request      the COMMIT waits before the server, then goes on, even if its client is dead
    late_commit       the client sees 2013 at once; the COMMIT reaches the server later
    half_open         the server committed; then silence both ways, nothing closed
    half_open_unsent  silence before the COMMIT reached the server (its locks stay)

`seconds=None` waits for rule.release(); rule.drop() closes what is held instead. An answer that is
an error (a deadlock, say) is passed on and does not count. Everything else passes unchanged, except
that the greeting offers neither TLS nor compression. Runs in a thread with its own loop, so it also
serves child processes. COM_QUERY only: prepared statements pass unseen, and are counted.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import uvloop

from tests.support.mysql_link import BUFFER_BYTES, Link
from tests.support.mysql_rules import CommitSeen, Rule

HOST = "127.0.0.1"
START_SECONDS_MAX = 10.0


class MysqlProxy:
    """Listens on a free loopback port and forwards to one server, under the rules of a test."""

    def __init__(self, server_host: str, server_port: int):
        self._server_address = (server_host, server_port)
        self.host, self.port = HOST, 0
        self.commits: list[CommitSeen] = []
        self.prepared_statements = 0
        self.connections_total = 0
        self._rules: list[Rule] = []
        self._links: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mysql-proxy")

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> "MysqlProxy":
        self._thread.start()
        self._call(self._listen())
        return self

    def stop(self) -> None:
        """Close every connection and end the thread. Safe to call twice."""
        if self._thread.is_alive():
            self._call(self._close(listener=True))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> "MysqlProxy":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def url(self, server_url: str) -> str:
        """The same schema through this proxy: a mysql:// URL of the server with our address."""
        parts = urlsplit(server_url)
        user = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{user}@{self.host}:{self.port}").geturl()

    # --- rules --------------------------------------------------------------------------------

    def on_commit(
        self,
        *,
        containing: str | Sequence[str] = (),
        action: str,
        nth: int = 1,
        times: int = 1,
        seconds: float | None = None,
    ) -> Rule:
        """Act on the nth COMMIT (and times - 1 more) whose transaction matches; see the module.

        `containing`: a regular expression that one statement of the transaction matches, or several
        that must each be matched by some statement (upper or lower case; "." matches newlines).
        """
        patterns = [containing] if isinstance(containing, str) else containing
        return self._add(True, patterns, action=action, nth=nth, times=times, seconds=seconds)

    def on_statement(
        self,
        *,
        matching: str,
        action: str,
        nth: int = 1,
        times: int = 1,
        seconds: float | None = None,
    ) -> Rule:
        """The same faults at any one statement, e.g. an UPDATE that commits itself (autocommit)."""
        return self._add(False, [matching], action=action, nth=nth, times=times, seconds=seconds)

    def _add(self, commits_only: bool, patterns: Sequence[str], **how: Any) -> Rule:
        rule = Rule(commits_only=commits_only, patterns=patterns, soon=self._soon, **how)
        self._rules.append(rule)
        return rule

    def rule_for(self, *, text: str, commit: bool, statements: list[str]) -> Rule | None:
        """Every rule counts its match; the oldest that takes this one acts. For the links."""
        takers = [
            rule
            for rule in list(self._rules)
            if rule.takes(text=text, commit=commit, statements=statements)
        ]
        return takers[0] if takers else None

    # --- the whole server, as the clients see it ----------------------------------------------

    @property
    def connections(self) -> int:
        """Client connections open now."""
        return len(self._links)

    def cut(self) -> None:
        """Close every connection now; new ones are welcome."""
        self._call(self._close(listener=False))

    def down(self) -> None:
        """Close every connection and refuse new ones (2002), as a stopped server does."""
        self._call(self._close(listener=True))

    def up(self) -> None:
        """Listen again, on the same port."""
        self._call(self._listen())

    # --- inside the loop ----------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS_MAX)

    def _soon(self, step: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is held any more
            self._loop.call_soon_threadsafe(step)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(
                self._accept, HOST, self.port, limit=BUFFER_BYTES, backlog=512
            )
            self.port = self._listener.sockets[0].getsockname()[1]

    async def _close(self, *, listener: bool) -> None:
        if listener and self._listener is not None:
            self._listener.close()
            self._listener = None
        for task in list(self._links):
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connections_total += 1
        self._links.add(task)
        try:
            server = await asyncio.open_connection(*self._server_address, limit=BUFFER_BYTES)
            await Link(self, (reader, writer), server).run()
        except (OSError, asyncio.CancelledError):  # no server, or cut by the test
            writer.close()
        finally:
            self._links.discard(task)
