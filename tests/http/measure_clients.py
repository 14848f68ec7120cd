"""CPU per call of the HTTP clients at 32 concurrent, against a trivial server in its own process.

    python -m tests.http.measure_clients [calls]

Prints the numbers that docs/decisions/0001-http-client.md quotes. Not a test.
"""

import asyncio
import multiprocessing
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpcore
import httpcore2
import httpx
import httpx2
import uvloop

from kernel.http import AddressPolicy, Door, read_body

CONCURRENT = 32
ROUNDS = 5
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hello"}]}' * 4
ANSWER = b'{"id": "1", "choices": [{"message": {"content": "hi"}}], "usage": {}}' * 8
HEADERS = [("Authorization", "Bearer k"), ("Content-Type", "application/json")]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"

Once = Callable[[], Awaitable[Any]]


class Trivial(asyncio.Protocol):
    """Answers every request at once; reads just enough to know where one ends."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.seen = 0

    def data_received(self, data: bytes) -> None:
        self.seen += data.count(b'"hello"}]}')
        if self.seen >= 4:
            self.seen -= 4
            self.transport.write(HEAD % len(ANSWER) + ANSWER)


def serve(pipe: Any) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(
            Trivial, "127.0.0.1", 0, backlog=1024
        )
        pipe.send(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    uvloop.run(main())


def client(module: Any, url: str) -> tuple[Once, Callable[[], Awaitable[Any]]]:
    limits = module.Limits(max_connections=2000, max_keepalive_connections=64)
    one = module.AsyncClient(trust_env=False, follow_redirects=False, limits=limits)

    async def once() -> None:
        async with one.stream("POST", url, headers=HEADERS, content=BODY) as response:
            body = b"".join([piece async for piece in response.aiter_raw()])
        assert len(body) == len(ANSWER)

    return once, one.aclose


def pool(module: Any, url: str) -> tuple[Once, Callable[[], Awaitable[Any]]]:
    one = module.AsyncConnectionPool(max_connections=2000, max_keepalive_connections=64)

    async def once() -> None:
        async with one.stream("POST", url, headers=HEADERS, content=BODY) as response:
            body = b"".join([piece async for piece in response.aiter_stream()])
        assert len(body) == len(ANSWER)

    return once, one.aclose


def door(stack: str, url: str) -> tuple[Once, Callable[[], Awaitable[Any]]]:
    one = Door(stack=stack)
    policy = AddressPolicy(allow_private=True)

    async def once() -> None:
        async with one.call(
            method="POST",
            url=url,
            headers=HEADERS,
            content=BODY,
            policy=policy,
            deadline_seconds=600,
            read_seconds=120,
            connect_seconds=10,
        ) as answer:
            body = await read_body(answer, body_bytes_max=2**20)
        assert len(body) == len(ANSWER)

    return once, one.aclose


async def measure(make: Callable[[], Any], calls: int) -> tuple[float, float]:
    """Milliseconds of CPU per call, and calls per second."""
    once, close = make()

    async def worker(count: int) -> None:
        for _ in range(count):
            await once()

    await asyncio.gather(*(worker(5) for _ in range(CONCURRENT)))
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(worker(calls // CONCURRENT) for _ in range(CONCURRENT)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    await close()
    done = calls // CONCURRENT * CONCURRENT
    return cpu / done * 1000, done / wall


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 3200
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}/"
    cases: dict[str, Callable[[], Any]] = {
        "httpx 0.28 client": lambda: client(httpx, url),
        "httpx2 client": lambda: client(httpx2, url),
        "httpcore pool": lambda: pool(httpcore, url),
        "httpcore2 pool": lambda: pool(httpcore2, url),
        "door over httpcore": lambda: door("httpx", url),
        "door over httpcore2": lambda: door("httpx2", url),
    }
    for loop_name, run in (("asyncio", asyncio.run), ("uvloop", uvloop.run)):
        rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for _ in range(ROUNDS):
            for name, make in cases.items():
                rounds[name].append(run(measure(make, calls)))
        for name, found in rounds.items():
            cpu = statistics.median(one[0] for one in found)
            rate = statistics.median(one[1] for one in found)
            print(f"{loop_name:8} {name:22} {cpu:6.3f} ms CPU/call {rate:7.0f} calls/s")
    server.terminate()


if __name__ == "__main__":
    main()
