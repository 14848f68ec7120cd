"""Many streams open at once in one process, 30 % of the clients leaving: all saved and settled."""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass

from tests.bench import load, product
from tests.support.mariadb_server import Server

ASKED = {
    "model": "demo",
    "stream": True,
    "messages": [{"role": "user", "content": "Tell me a lot"}],
}
BODY, SHORT_BODY = json.dumps(ASKED).encode(), json.dumps({**ASKED, "max_tokens": 4}).encode()
WARM_UP_STREAMS = 20
SETTLED_SECONDS_MAX = 120.0
OURS = "operation_id LIKE 'stream-%'"
COUNTS = f"""
SELECT (SELECT COUNT(*) FROM bz_usage_requests WHERE {OURS}
    AND result_state = 'complete' AND billing_state = 'settled'),
  (SELECT COUNT(*) FROM bz_usage_ledger JOIN bz_usage_requests AS r ON r.id = request_id
    WHERE {OURS}),
  (SELECT SUM(amount_nano) FROM bz_usage_ledger) = (SELECT SUM(consumed_nano)
    FROM bz_usage_accounts)
"""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the streams; `settled` counts requests with exactly their ledger row."""

    streams: int
    open_peak: int
    opening_seconds: float
    left: int
    whole: int
    settled: int
    seconds: float
    memory_before_mib: float
    memory_peak_mib: float


def measure(server: Server, *, streams: int, chunk_ms: int) -> Result:
    """Open all, let 30 % of the clients leave once all are open, wait until all is settled.

    A stream has about 60 events, one each `chunk_ms`: it must last longer than opening them takes.
    """
    with server.schema() as url, product.running(url, chunk_ms=chunk_ms) as running:
        asyncio.run(
            _all(running, SHORT_BODY, WARM_UP_STREAMS, load.Open(), [0.0])
        )  # fills pools and caches
        opened, peak = load.Open(), [before := running.memory_mib()]
        started = time.monotonic()
        ends = asyncio.run(_all(running, BODY, streams, opened, peak))
        settled = _wait_until_settled(server, url, WARM_UP_STREAMS + streams) - WARM_UP_STREAMS
        return Result(
            streams=streams,
            open_peak=opened.peak,
            opening_seconds=opened.peak_at - started,
            left=sum(_leaves(number) for number in range(streams)),
            whole=sum(ends),
            settled=settled,
            seconds=time.monotonic() - started,
            memory_before_mib=before,
            memory_peak_mib=peak[0],
        )


def _leaves(number: int) -> bool:
    return number % 10 < 3


async def _all(
    running: product.Product, body: bytes, streams: int, opened: load.Open, peak: list[float]
) -> list[bool]:
    async def watch() -> None:
        while True:
            peak[0] = max(peak[0], running.memory_mib())
            await asyncio.sleep(0.2)

    def message(number: int) -> bytes:
        headers = running.headers(f"stream-{len(body)}-{number}")
        return load.post("/v1/chat/completions", body, host=running.host, headers=headers)

    watcher = asyncio.create_task(watch())
    try:
        return await asyncio.gather(
            *(
                load.stream(
                    host=running.host,
                    port=running.port,
                    message=message(number),
                    opened=opened,
                    leave_at=streams if _leaves(number) else None,
                )
                for number in range(streams)
            )
        )
    finally:
        watcher.cancel()


def _wait_until_settled(server: Server, url: str, wanted: int) -> int:
    """How many are complete, settled and in the ledger, once all are or time is up."""
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    with contextlib.closing(server.connect(url.rsplit("/", 1)[1])) as connection:
        cursor = connection.cursor()
        while True:
            cursor.execute(COUNTS)
            settled, ledger, agrees = cursor.fetchone()
            if (settled, ledger, agrees) == (wanted, wanted, 1) or time.monotonic() > deadline:
                return int(min(settled, ledger)) if agrees else 0
            time.sleep(0.2)
