"""A business tool on loopback in the test's own event loop: counts calls, answers as it is told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

DROP = -1  # read the call, then close without an answer


@dataclass
class ToolCalled:
    """One call as it arrived."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class ToolPeer:
    """What arrived, and what is answered: `status` and `body`, after `answer_when` is set."""

    url: str = ""
    status: int = 200
    body: bytes = b'{"ok":true}'
    calls: list[ToolCalled] = field(default_factory=list)
    on_call: Callable[[], None] = lambda: None
    answer_when: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def count(self) -> int:
        return len(self.calls)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                pairs = [line.split(": ", 1) for line in head[1:] if line]
                headers = {name.lower(): value for name, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.calls.append(ToolCalled(head[0], headers, body))
                self.on_call()
                await self.answer_when.wait()
                if self.status == DROP:
                    break
                writer.write(
                    f"HTTP/1.1 {self.status} X\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(self.body)}\r\n\r\n".encode()
                    + self.body
                )
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def tool_peer() -> AsyncIterator[ToolPeer]:
    """A running tool; it answers at once until `answer_when` is cleared."""
    peer = ToolPeer()
    peer.answer_when.set()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/refund"
    try:
        yield peer
    finally:
        peer.answer_when.set()
        server.close()
