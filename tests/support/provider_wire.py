"""The test provider's side of one HTTP/1.1 connection: reading calls, writing any bytes at all."""

import asyncio
import contextlib
import json
import socket
import struct
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

HEAD_BYTES_MAX = 64 * 1024


class PeerLeft(Exception):
    """The caller closed its side while the provider was silent."""


@dataclass
class ReceivedCall:
    """One call as it came in; `complete` is False when the caller left inside its own body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    complete: bool
    sequence: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        try:
            value = json.loads(self.body or b"null")
        except ValueError:
            value = None
        self.json: dict[str, Any] = value if isinstance(value, dict) else {}
        self.model: str = str(self.json.get("model") or "")
        self.stream = self.json.get("stream") is True
        options = self.json.get("stream_options")
        self.wants_usage = isinstance(options, dict) and options.get("include_usage") is True
        metadata = self.json.get("metadata")
        self.metadata: dict[str, Any] = metadata if isinstance(metadata, dict) else {}

    @property
    def marker(self) -> str:
        """Which operation this is: body `user`, header X-Test-Marker or metadata `marker`."""
        named = self.json.get("user") or self.headers.get("x-test-marker")
        return str(named or self.metadata.get("marker") or "")


async def read_call(reader: asyncio.StreamReader) -> ReceivedCall | None:
    """The next call of a connection, None when the peer ended it between two calls."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {}
    for line in filter(None, lines):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body, complete = b"", True
    try:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readuntil(b"\r\n")
        else:
            body = await reader.readexactly(int(headers.get("content-length", 0)))
    except asyncio.IncompleteReadError as error:
        body, complete = body + error.partial, False
    except ConnectionError:
        complete = False
    return ReceivedCall(method, path, headers, body, complete)


class Wire:
    """Writes the answer. After close(), reset() or a lying end the connection is over."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer
        self.over = False
        self.request_id = "req-test"

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, code: int, headers: dict[str, str]) -> None:
        """Status line and headers; JSON unless they say otherwise."""
        lines = [f"HTTP/1.1 {code} {_phrase(code)}"]
        merged = {"Content-Type": "application/json", "X-Request-Id": self.request_id, **headers}
        lines += [f"{name}: {value}" for name, value in merged.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def whole(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """A complete answer with its length."""
        await self.head(code, {"Content-Length": str(len(body)), **(headers or {})})
        await self.send(body)

    async def start_chunks(
        self,
        kind: str = "text/event-stream",
        code: int = 200,
        headers: dict[str, str] | None = None,
    ) -> None:
        chunked = {"Content-Type": kind, "Transfer-Encoding": "chunked"}
        await self.head(code, {**chunked, **(headers or {})})

    async def chunk(self, data: bytes) -> None:
        """One HTTP chunk; empty data sends nothing, since an empty chunk would be the end."""
        if data:
            await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end_chunks(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def finish(self, end: str) -> None:
        """End a chunked answer: `clean`, `close` (no end), `rst`, `bad` (not a chunk)."""
        if end == "clean":
            await self.end_chunks()
        elif end == "rst":
            self.reset()
        else:
            if end == "bad":
                await self.send(b"ZZ\r\nnot a chunk")
            self.close()

    def close(self) -> None:
        self.over = True
        self._writer.close()

    def reset(self) -> None:
        """Close with a TCP reset instead of a FIN; bytes already delivered stay delivered."""
        self.over = True
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def wait_for(self, released: asyncio.Event) -> None:
        """Be silent until `released`. Raises PeerLeft when the caller leaves first."""
        release = asyncio.ensure_future(released.wait())
        leaving = asyncio.ensure_future(self._reader.read(1))
        try:
            await asyncio.wait({release, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not released.is_set():
                raise PeerLeft
        finally:
            for task in (release, leaving):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await task

    async def wait_for_peer_to_leave(self) -> None:
        await self.wait_for(asyncio.Event())


def _phrase(code: int) -> str:
    try:
        return HTTPStatus(code).phrase
    except ValueError:
        return "Unknown"
