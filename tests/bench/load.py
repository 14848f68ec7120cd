"""A light load generator: raw asyncio connections, one keep-alive connection per client."""

import asyncio
import time
from collections.abc import Callable, Sequence
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


def together(loads: Sequence[Load]) -> Load:
    """Several runs as one."""
    calls = [span for one in loads for span in one.calls]
    return Load(sum(one.seconds for one in loads), calls, sum(one.errors for one in loads))


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
    *, host: str, port: int, clients: int, seconds: float, message: Callable[[], bytes]
) -> Load:
    """Requests over `clients` connections, as fast as they come back, for `seconds`."""
    load = Load()
    started = time.perf_counter()

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            while (sent := time.perf_counter()) < started + seconds:
                writer.write(message())
                answer = _Answer()
                while not answer.done:
                    data = await reader.read(65536)
                    if not data:
                        load.errors += 1
                        return
                    answer.parser.feed_data(data)
                load.calls.append((time.perf_counter() - sent) * 1000)
                load.errors += answer.status != 200
        finally:
            writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    load.seconds = time.perf_counter() - started
    return load


@dataclass(slots=True)
class Open:
    """How many streams are open now, and at most were: from the answer's head to its end."""

    now: int = 0
    peak: int = 0
    peak_at: float = 0.0

    def enter(self) -> None:
        """One more is open."""
        self.now += 1
        if self.now > self.peak:
            self.peak, self.peak_at = self.now, time.monotonic()


async def stream(
    *, host: str, port: int, message: bytes, opened: Open, leave_at: int | None = None
) -> bool:
    """Read one stream to its end (True), or leave once `leave_at` streams have been open."""
    reader, writer = await asyncio.open_connection(host, port)
    answer, is_open = _Answer(), False
    try:
        writer.write(message)
        while not answer.done:
            data = await reader.read(65536)
            if not data:
                return False
            answer.parser.feed_data(data)
            if not is_open:
                is_open = True
                opened.enter()
            if leave_at is not None and opened.peak >= leave_at:
                return False
        return answer.status == 200
    finally:
        opened.now -= is_open
        writer.close()
