"""A small HTTP server on the loopback that misbehaves on request, and counts what it received.

    async with HostilePeer() as peer:
        peer.url("bomb", mib=64)       # the path names the behaviour, the query its parameters
        peer.received["bomb"]          # requests of it that were read in full

The behaviours are in tests/support/hostile_answers.py.
"""

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.support.hostile_answers import BEHAVIOURS, CRLF, PeerRequest, PeerWire


@dataclass
class HostilePeer:
    """The server. `tls`: a server context for https. `first`: what to do before any request."""

    tls: ssl.SSLContext | None = None
    first: Callable[[PeerWire], Awaitable[Any]] | None = None
    received: Counter[str] = field(default_factory=Counter)
    requests: list[PeerRequest] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    def url(self, name: str, **params: int) -> str:
        scheme = "https" if self.tls else "http"
        query = f"?{urlencode(params)}" if params else ""
        return f"{scheme}://127.0.0.1:{self.port}/{name}{query}"

    async def __aenter__(self) -> "HostilePeer":
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, ssl=self.tls, limit=2**20, backlog=4096
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        wire = PeerWire(reader, writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                if self.first is not None:
                    await self.first(wire)
                while await self._one(wire):
                    pass
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, wire: PeerWire) -> bool:
        head = await wire.reader.readuntil(CRLF + CRLF)
        start, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, target, _ = start.split(" ")
        parts = urlsplit(target)
        name = parts.path.strip("/")
        headers = [(line.partition(":")[0], line.partition(":")[2].strip()) for line in lines]
        params = {key: int(value) for key, value in parse_qsl(parts.query)}
        request = PeerRequest(method, target, headers, b"", params)
        if name != "early_refusal":
            length = int(request.header("content-length") or 0)
            request.body = await wire.reader.readexactly(length)
        self.requests.append(request)
        self.received[name] += 1
        return bool(await BEHAVIOURS[name](wire, request))
