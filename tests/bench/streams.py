"""Many streams open at once in one process, 30 % of the clients leaving: all saved and settled."""

import asyncio
import json
import time
from dataclasses import dataclass

from tests.bench import load, product

BODY = json.dumps(
    {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "Tell me a lot"}]}
).encode()
CHUNK_MS = 400


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the streams."""

    streams: int
    left: int
    whole: int
    seconds: float
    memory_before_mib: float
    memory_peak_mib: float
    pending_after: int


def measure(url: str, *, streams: int) -> Result:
    """Open all at once; every third client leaves; wait until the product has no work left."""
    with product.running(url, chunk_ms=CHUNK_MS) as running:
        before = running.memory_mib()
        peak = [before]

        async def all_streams() -> list[bool]:
            async def watch() -> None:
                while True:
                    peak[0] = max(peak[0], running.memory_mib())
                    await asyncio.sleep(0.2)

            watcher = asyncio.create_task(watch())
            tasks = []
            for number in range(streams):
                message = load.post(
                    "/v1/chat/completions",
                    BODY,
                    host=running.host,
                    headers=running.headers(f"stream-{number}"),
                )
                leave = 2 if number % 10 < 3 else None
                tasks.append(
                    load.stream(
                        host=running.host, port=running.port, message=message, leave_after=leave
                    )
                )
            ends = await asyncio.gather(*tasks)
            watcher.cancel()
            return ends

        started = time.monotonic()
        ends = asyncio.run(all_streams())
        states = _wait_until_settled(running, streams)
        return Result(
            streams=streams,
            left=sum(1 for number in range(streams) if number % 10 < 3),
            whole=sum(ends),
            seconds=time.monotonic() - started,
            memory_before_mib=before,
            memory_peak_mib=peak[0],
            pending_after=streams - states,
        )


def _wait_until_settled(running: product.Product, streams: int) -> int:
    deadline = time.monotonic() + 120
    unsettled = set(range(streams))
    while unsettled and time.monotonic() < deadline:
        for number in sorted(unsettled):
            found = running.get(f"/usage/v1/requests/stream-{number}")
            if (found["result_state"], found["billing_state"]) != ("complete", "settled"):
                break
            unsettled.discard(number)
        else:
            break
        time.sleep(0.2)
    return streams - len(unsettled)
