"""A light load generator: raw asyncio connections, one keep-alive connection per client."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httptools


@dataclass(slots=True)
class Load:
    """What a run came to: seconds in all, and each call's milliseconds."""

    seconds: float = 0.0
    calls: list[float] = field(default_factory=list)
    errors: int = 0

    @property
    def rate(self) -> float:
        """Calls per second."""
        return len(self.calls) / self.seconds if self.seconds else 0.0

    def percentile(self, share: float) -> float:
        """Milliseconds at `share` (0.5 = median)."""
        ordered = sorted(self.calls)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


class _Answer:
    """Reads one HTTP answer; knows when it is over."""

    def __init__(self) -> None:
        self.done = False
        self.status = 0
        self.parser = httptools.HttpResponseParser(self)

    def on_message_complete(self) -> None:
        self.done = True
        self.status = self.parser.get_status_code()


def post(path: str, body: bytes, *, host: str, headers: dict[str, str]) -> bytes:
    """One POST as bytes."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


async def run(
    *, host: str, port: int, clients: int, calls: int, message: Callable[[int], bytes]
) -> Load:
    """`calls` requests over `clients` connections, as fast as they come back."""
    load = Load()
    numbers = iter(range(calls))

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            for number in numbers:
                started = time.perf_counter()
                writer.write(message(number))
                answer = _Answer()
                while not answer.done:
                    data = await reader.read(65536)
                    if not data:
                        load.errors += 1
                        return
                    answer.parser.feed_data(data)
                load.calls.append((time.perf_counter() - started) * 1000)
                load.errors += answer.status != 200
        finally:
            writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    load.seconds = time.perf_counter() - started
    return load


async def stream(*, host: str, port: int, message: bytes, leave_after: int | None) -> bool:
    """Open one stream; read to its end, or leave after so many reads. True when it ended whole."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(message)
        answer, reads = _Answer(), 0
        while not answer.done:
            data = await reader.read(65536)
            if not data:
                return False
            answer.parser.feed_data(data)
            reads += 1
            if leave_after is not None and reads >= leave_after:
                return False
        return True
    finally:
        writer.close()
