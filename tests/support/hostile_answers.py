"""What a hostile peer does with a request: each behaviour is one function that writes raw bytes.

It returns True where the connection is kept. Parameters are the integers of the query.
"""

import asyncio
import contextlib
import gzip
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

CRLF = b"\r\n"
PLAIN = b'{"answer": "plain text that is long enough to be worth cutting"}'


@dataclass
class PeerRequest:
    """One request as it was received."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    params: dict[str, int]

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass
class PeerWire:
    """The server's end of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: str, *headers: tuple[str, str]) -> None:
        lines = [f"HTTP/1.1 {status}".encode()]
        lines += [f"{name}: {value}".encode() for name, value in headers]
        await self.send(CRLF.join([*lines, b"", b""]))

    async def answer(self, body: bytes, *headers: tuple[str, str], status: str = "200 OK") -> None:
        await self.head(status, ("Content-Length", str(len(body))), *headers)
        await self.send(body)

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def until_gone(self) -> None:
        """Wait until the client has left."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Behaviour = Callable[[PeerWire, PeerRequest], Awaitable[bool | None]]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS[function.__name__] = function
    return function


# --- good answers ---


@behaviour
async def ok(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.answer(b"x" * request.params.get("size", 2), ("Content-Type", "text/plain"))
    return True


@behaviour
async def echo(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.answer(request.body)
    return True


@behaviour
async def nothing(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("204 No Content")
    return True


@behaviour
async def head_only(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("200 OK", ("Content-Length", "999999999"), ("Content-Encoding", "gzip"))
    return True


@behaviour
async def chunked(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("200 OK", ("Transfer-Encoding", "chunked"))
    for _ in range(request.params.get("chunks", 3)):
        await wire.chunk(b"chunk")
        await asyncio.sleep(request.params.get("gap_ms", 0) / 1000)
    await wire.send(b"0\r\n\r\n")
    return True


@behaviour
async def stream_until_told(wire: PeerWire, request: PeerRequest) -> bool:
    """One chunk, then nothing until the client leaves."""
    await wire.head("200 OK", ("Transfer-Encoding", "chunked"))
    await wire.chunk(b"first")
    await wire.until_gone()
    return False


# --- encodings ---


def _encoded(name: str, encoding: str, body: Callable[[], bytes]) -> None:
    async def act(wire: PeerWire, request: PeerRequest) -> bool:
        await wire.answer(body(), ("Content-Encoding", encoding))
        return True

    BEHAVIOURS[name] = act


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


_encoded("gzip_ok", "gzip", lambda: gzip.compress(PLAIN))
_encoded("deflate_ok", "deflate", lambda: zlib.compress(PLAIN))
_encoded("deflate_raw", "deflate", lambda: _raw_deflate(PLAIN))
_encoded("gzip_empty_body", "gzip", lambda: b"")
_encoded("gzip_truncated", "gzip", lambda: gzip.compress(PLAIN)[:-5])
_encoded("deflate_truncated", "deflate", lambda: zlib.compress(PLAIN)[:-3])
_encoded("gzip_trailing", "gzip", lambda: gzip.compress(PLAIN) + b"garbage")
_encoded("gzip_two_members", "gzip", lambda: gzip.compress(PLAIN) * 2)
_encoded("gzip_but_plain", "gzip", lambda: PLAIN)
_encoded("stacked", "gzip, gzip", lambda: gzip.compress(gzip.compress(PLAIN)))
_encoded("unknown_encoding", "br", lambda: PLAIN)


@behaviour
async def bomb(wire: PeerWire, request: PeerRequest) -> bool:
    """`mib` MiB of zeros in about a thousandth of that, chunked, no length."""
    packer = zlib.compressobj(wbits=31 if request.params.get("gzip", 1) else 15)
    encoding = "gzip" if request.params.get("gzip", 1) else "deflate"
    await wire.head("200 OK", ("Transfer-Encoding", "chunked"), ("Content-Encoding", encoding))
    for _ in range(request.params.get("mib", 64)):
        if data := packer.compress(bytes(2**20)):
            await wire.chunk(data)
    await wire.chunk(packer.flush())
    await wire.send(b"0\r\n\r\n")
    return True


@behaviour
async def empty_blocks(wire: PeerWire, request: PeerRequest) -> bool:
    """Compressed bytes for ever that decode to nothing."""
    await wire.head("200 OK", ("Transfer-Encoding", "chunked"), ("Content-Encoding", "deflate"))
    await wire.chunk(b"\x78\x9c")
    while True:
        await wire.chunk(b"\x00\x00\x00\xff\xff" * 1000)


# --- lengths and ends ---


@behaviour
async def understated(wire: PeerWire, request: PeerRequest) -> bool:
    """Content-Length 5, then the rest, and a forged answer for whoever comes next."""
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nshort" + forged)
    return True


@behaviour
async def huge_length(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("200 OK", ("Content-Length", str(10**12)))
    await wire.until_gone()
    return False


@behaviour
async def endless(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("200 OK", ("Transfer-Encoding", "chunked"))
    while True:
        await wire.chunk(bytes(65536))


@behaviour
async def short_body(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("200 OK", ("Content-Length", "20"))
    await wire.send(b"five!")
    return False


@behaviour
async def short_chunked(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("200 OK", ("Transfer-Encoding", "chunked"))
    await wire.chunk(b"five!")
    return False


@behaviour
async def bad_chunk(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("200 OK", ("Transfer-Encoding", "chunked"))
    await wire.send(b"zz\r\nfive!\r\n")
    return False


@behaviour
async def close_delimited(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("200 OK", ("Content-Type", "text/plain"))
    await wire.send(b"until the end")
    return False


@behaviour
async def close_delimited_open(wire: PeerWire, request: PeerRequest) -> bool:
    """No length, one piece, and no end until the client leaves."""
    await wire.head("200 OK")
    await wire.send(b"first")
    await wire.until_gone()
    return False


@behaviour
async def http10(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.send(b"HTTP/1.0 200 OK\r\n\r\nold style")
    return False


@behaviour
async def reset_in_body(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("200 OK", ("Content-Length", "20"))
    await wire.send(b"five!")
    await wire.reader.read(1) if request.params.get("wait") else await asyncio.sleep(0.05)
    wire.reset()
    return False


# --- time ---


@behaviour
async def hang(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.until_gone()
    return False


@behaviour
async def hang_after_head(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("200 OK", ("Content-Length", "20"))
    await wire.until_gone()
    return False


@behaviour
async def drip(wire: PeerWire, request: PeerRequest) -> bool:
    """A byte every `gap_ms`: never silent, never done."""
    await wire.head("200 OK", ("Content-Length", "100000"))
    while True:
        await wire.send(b".")
        await asyncio.sleep(request.params.get("gap_ms", 20) / 1000)


@behaviour
async def drip_head(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.send(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        await wire.send(b".")
        await asyncio.sleep(request.params.get("gap_ms", 20) / 1000)


@behaviour
async def continue_for_ever(wire: PeerWire, request: PeerRequest) -> bool:
    while True:
        await wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await asyncio.sleep(0.005)


# --- connections ---


@behaviour
async def reset_after_request(wire: PeerWire, request: PeerRequest) -> bool:
    wire.reset()
    return False


@behaviour
async def close_after_request(wire: PeerWire, request: PeerRequest) -> bool:
    return False


@behaviour
async def keep_then_close(wire: PeerWire, request: PeerRequest) -> bool:
    """Promises to keep the connection, then closes it, `after_ms` later."""
    await wire.answer(b"ok", ("Connection", "keep-alive"))
    await asyncio.sleep(request.params.get("after_ms", 0) / 1000)
    return False


@behaviour
async def close_says_so(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.answer(b"ok", ("Connection", "close"))
    return False


@behaviour
async def early_refusal(wire: PeerWire, request: PeerRequest) -> bool:
    """Answers before it has read the body, then closes."""
    await wire.answer(b"too big", ("Connection", "close"), status="413 Too Large")
    await asyncio.sleep(0.2)
    return False


# --- odd heads ---


@behaviour
async def redirect(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.answer(b"", ("Location", "/ok"), status="307 Temporary Redirect")
    return True


@behaviour
async def cookie(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.answer(b"ok", ("Set-Cookie", "session=secret; Path=/"))
    return True


@behaviour
async def many_headers(wire: PeerWire, request: PeerRequest) -> bool:
    count = request.params.get("count", 101)
    await wire.answer(b"ok", *((f"X-{number}", "v") for number in range(count - 1)))
    return True


@behaviour
async def huge_header(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.answer(b"ok", ("X-Huge", "h" * 1024 * request.params.get("kib", 64)))
    return True


@behaviour
async def two_lengths(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("200 OK", ("Content-Length", "2"), ("Content-Length", "3"))
    await wire.send(b"okk")
    return True


@behaviour
async def garbage(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.send(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
    return False


@behaviour
async def half_a_head(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.send(b"HTTP/1.1 200 OK\r\nContent-Le")
    return False


@behaviour
async def switch(wire: PeerWire, request: PeerRequest) -> bool:
    await wire.head("101 Switching Protocols", ("Upgrade", "anything"))
    return False
