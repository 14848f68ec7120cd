"""One client connection through the proxy: two pumps, and the faults at a matching COMMIT."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from tests.support import mysql_protocol as protocol
from tests.support.mysql_protocol import Packet, Response, Transaction
from tests.support.mysql_rules import CommitSeen, Firing, Rule

BUFFER_BYTES = 1024 * 1024
GONE = (asyncio.IncompleteReadError, ConnectionError, TimeoutError)


class Owner(Protocol):
    """What a link needs of the proxy."""

    commits: list[CommitSeen]
    prepared_statements: int

    def rule_for(self, *, text: str, commit: bool, statements: list[str]) -> Rule | None: ...


class Link:
    """Forwards packets both ways. A rule that takes a statement gets the link to itself."""

    def __init__(
        self,
        owner: Owner,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ):
        self._owner = owner
        self._client_reader, self._client = client
        self._server_reader, self._server = server
        self._in_commands = False
        self._capabilities = 0
        self.thread_id = 0
        self._transaction = Transaction()
        self._response = Response(protocol.QUIT, 0, done=True)
        self._text = ""
        self._withheld: bytearray | None = None
        self._answered = asyncio.Event()
        self._actions: dict[str, Callable[[Rule, Firing, Packet], Awaitable[None]]] = {
            "withhold_ok": self._withhold_ok,
            "drop_request": self._drop_request,
            "hold_ok": self._hold_ok,
            "hold_request": self._hold_request,
            "late_commit": self._late_commit,
            "half_open": self._half_open,
            "half_open_unsent": self._half_open_unsent,
        }

    async def run(self) -> None:
        """Until either side ends. Both connections are closed at the end."""
        try:
            with contextlib.suppress(*GONE):
                await self._greet()
                pumps = {
                    asyncio.ensure_future(self._pump_client()),
                    asyncio.ensure_future(self._pump_server()),
                }
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()
                    await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._server.close()
            self._client.close()

    async def _greet(self) -> None:
        raw, self.thread_id = protocol.plain_greeting(
            await protocol.read_packet(self._server_reader)
        )
        self._client.write(raw)
        reply = await protocol.read_packet(self._client_reader)
        self._capabilities = int.from_bytes(reply.payload[:4], "little")
        if self._capabilities & protocol.HIDDEN:
            raise ConnectionError("the client insists on TLS or compression")
        self._server.write(reply.raw)

    # --- the two pumps ------------------------------------------------------------------------

    async def _pump_client(self) -> None:
        while True:
            packet = await protocol.read_packet(self._client_reader)
            if self._response.wants_client_data:
                self._response.wants_client_data = packet.size > 0
            elif self._in_commands and packet.sequence == 0 and await self._command(packet):
                continue
            self._server.write(packet.raw)
            await self._server.drain()

    async def _pump_server(self) -> None:
        while True:
            packet = await protocol.read_packet(self._server_reader)
            if not self._in_commands:
                self._in_commands = packet.payload[:1] == b"\x00"
            elif not self._response.done:
                self._response.feed(packet)
            if self._withheld is not None:
                self._withheld += packet.raw
            else:
                self._client.write(packet.raw)
                await self._client.drain()
            if self._response.done and not self._answered.is_set():
                self._took_answer()

    def _took_answer(self) -> None:
        """The answer to the current command is complete."""
        self._transaction.answered(self._text, self._response)
        self._answered.set()

    async def _command(self, packet: Packet) -> bool:
        """A new command of the client; True when a rule dealt with it (nothing to forward)."""
        command = packet.payload[0]
        self._expect_answer(command, "")
        if command == protocol.STMT_PREPARE:
            self._owner.prepared_statements += 1
        if command != protocol.QUERY:
            return False
        text = protocol.statement_text(packet.payload)
        commit = protocol.is_commit(text)
        self._transaction.sent(text)
        statements = self._transaction.statements
        rule = self._owner.rule_for(text=text, commit=commit, statements=statements)
        if rule is not None:
            firing = Firing(self.thread_id, text, tuple(statements))
            await self._actions[rule.action](rule, firing, packet)
            return True
        if commit:
            await self._ask_and_note(packet, text)
            await self._answer_client()
            return True
        self._expect_answer(command, text)
        return False

    def _expect_answer(self, command: int, text: str) -> None:
        self._response, self._text = Response(command, self._capabilities), text
        self._answered.clear()

    # --- asking the server while the client waits ---------------------------------------------

    async def _ask_and_note(self, packet: Packet, text: str) -> str:
        """Send a statement, keep its whole answer back; the outcome. A COMMIT is noted."""
        statements, outcome = tuple(self._transaction.statements), "lost"
        self._expect_answer(protocol.QUERY, text)
        self._withheld = bytearray()
        try:
            self._server.write(packet.raw)
            await self._server.drain()
            await self._answered.wait()
            outcome = "refused" if self._response.error else "committed"
        finally:
            if protocol.is_commit(text):
                seen = CommitSeen(self.thread_id, statements, time.time(), outcome)
                self._owner.commits.append(seen)
        return outcome

    async def _answer_client(self) -> None:
        """Hand over the answer that was kept back."""
        kept, self._withheld = bytes(self._withheld or b""), None
        self._client.write(kept)
        await self._client.drain()

    def _close_client(self) -> None:
        self._client.close()

    async def _ask_for_ok(self, rule: Rule, firing: Firing, packet: Packet) -> bool:
        """Ask the server; on its OK the rule has fired, its error goes to the client at once."""
        outcome = await self._ask_and_note(packet, firing.text)
        if outcome != "committed":
            rule.refused()
            await self._answer_client()
            return False
        firing.outcome, firing.at = outcome, time.time()
        return True

    # --- the faults ---------------------------------------------------------------------------

    async def _withhold_ok(self, rule: Rule, firing: Firing, packet: Packet) -> None:
        if await self._ask_for_ok(rule, firing, packet):
            self._close_client()
            rule.firings.append(firing)
            raise ConnectionError

    async def _drop_request(self, rule: Rule, firing: Firing, packet: Packet) -> None:
        firing.outcome = "dropped"
        self._server.close()
        self._close_client()
        rule.firings.append(firing)
        raise ConnectionError

    async def _hold_ok(self, rule: Rule, firing: Firing, packet: Packet) -> None:
        if await self._ask_for_ok(rule, firing, packet):
            rule.firings.append(firing)
            if not await rule.hold():
                raise ConnectionError
            await self._answer_client()

    async def _hold_request(self, rule: Rule, firing: Firing, packet: Packet) -> None:
        rule.firings.append(firing)
        await self._send_when_released(rule, firing, packet)
        await self._answer_client()

    async def _late_commit(self, rule: Rule, firing: Firing, packet: Packet) -> None:
        self._close_client()
        rule.firings.append(firing)
        await self._send_when_released(rule, firing, packet)
        raise ConnectionError

    async def _half_open(self, rule: Rule, firing: Firing, packet: Packet) -> None:
        if await self._ask_for_ok(rule, firing, packet):
            rule.firings.append(firing)
            await rule.hold()
            raise ConnectionError

    async def _half_open_unsent(self, rule: Rule, firing: Firing, packet: Packet) -> None:
        rule.firings.append(firing)
        await rule.hold()
        firing.outcome = "dropped"
        raise ConnectionError

    async def _send_when_released(self, rule: Rule, firing: Firing, packet: Packet) -> None:
        """Wait, then send the request after all: also when its client is long dead."""
        if not await rule.hold():
            firing.outcome = "dropped"
            raise ConnectionError
        firing.outcome = await self._ask_and_note(packet, firing.text)
