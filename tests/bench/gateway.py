"""The gateway against calling the demo provider directly: 1, 8, 32 at once, instant and 100 ms."""

import asyncio
import itertools
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from kernel.demo.launcher import DemoProvider, start_provider
from tests.bench import load, product
from tests.support.mariadb_server import Server

CLIENTS = (1, 8, 32)
LATENCIES_MS = (0, 100)
PATH = "/v1/chat/completions"
BODY = json.dumps(
    {"model": "demo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16}
).encode()
TARGET_PER_SECOND = 300
TARGET_ADDED_MS = 15


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: calls per second of each round, milliseconds of all calls."""

    clients: int
    latency_ms: int
    direct_rates: list[float]
    direct_p50: float
    rates: list[float]
    p50: float
    p95: float
    cpu_ms: float

    @property
    def direct_rate(self) -> float:
        return statistics.median(self.direct_rates)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def added_p50(self) -> float:
        return self.p50 - self.direct_p50


def measure(
    server: Server, *, latencies: tuple[int, ...], rounds: int, seconds: float
) -> list[Row]:
    """All rows, one product and one schema per provider latency; `seconds` per round and side."""
    found = []
    for latency in latencies:
        with (
            start_provider(latency_ms=latency) as provider,
            server.schema() as url,
            product.running(url, latency_ms=latency) as running,
        ):
            found += [
                _row(
                    running,
                    provider,
                    clients=clients,
                    latency=latency,
                    rounds=rounds,
                    seconds=seconds,
                )
                for clients in CLIENTS
            ]
    return found


def _row(
    running: product.Product,
    provider: DemoProvider,
    *,
    clients: int,
    latency: int,
    rounds: int,
    seconds: float,
) -> Row:
    address = urlsplit(provider.url)
    host, port = str(address.hostname), int(address.port or 80)
    numbers = itertools.count()

    def to_provider() -> bytes:
        return load.post(PATH, BODY, host=host, headers={})

    def to_product() -> bytes:
        headers = running.headers(f"bench-{latency}-{clients}-{next(numbers)}")
        return load.post(PATH, BODY, host=running.host, headers=headers)

    def run(host: str, port: int, message: Callable[[], bytes], seconds: float) -> load.Load:
        calls = load.run(host=host, port=port, clients=clients, seconds=seconds, message=message)
        done = asyncio.run(calls)
        if done.errors:
            raise RuntimeError(f"{done.errors} errors at {clients} clients")
        return done

    run(running.host, running.port, to_product, seconds / 2)  # fills pools and caches
    direct, through, cpu = [], [], 0.0
    for _ in range(rounds):  # alternating, so that both see the same noise
        direct.append(run(host, port, to_provider, seconds / 2))
        before = running.cpu_seconds()
        through.append(run(running.host, running.port, to_product, seconds))
        cpu += running.cpu_seconds() - before
    every_direct, every = load.together(direct), load.together(through)
    return Row(
        clients=clients,
        latency_ms=latency,
        direct_rates=[one.rate for one in direct],
        direct_p50=every_direct.percentile(0.5),
        rates=[one.rate for one in through],
        p50=every.percentile(0.5),
        p95=every.percentile(0.95),
        cpu_ms=cpu / len(every.calls) * 1000,
    )
