"""A provider and a business service that answer at once: `python -m tests.bench.instant`.

Its first line of input is what the model says at every step; it prints its port, and answers until
its input ends.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httptools

ROOT = Path(__file__).resolve().parents[2]
MODEL_PATH, TOOL_PATH = "/v1/chat/completions", "/look"


class _Connection(asyncio.Protocol):
    """Answers each request of one connection by its path; nothing is kept."""

    def __init__(self, says: bytes) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.path = b""
        self.answers = {MODEL_PATH.encode(): says}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a socket"
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.path = url.partition(b"?")[0]

    def on_message_complete(self) -> None:
        body = self.answers.get(self.path, b'{"ok": true}')
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        self.transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


@contextmanager
def running(says: bytes) -> Iterator[int]:
    """The server in its own process, its model saying this one line; its port on 127.0.0.1."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.instant"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None, "both are pipes"
    try:
        process.stdin.write(says + b"\n")
        process.stdin.flush()
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


async def _serve() -> None:
    says = sys.stdin.buffer.readline().strip()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(says), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
