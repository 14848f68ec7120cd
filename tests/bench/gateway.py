"""The gateway against calling the demo provider directly.

1, 8 and 32 at once, instant and 100 ms.
"""

import asyncio
import itertools
import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from kernel.demo.launcher import start_provider
from tests.bench import load, product

BODY = json.dumps(
    {"model": "demo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16}
).encode()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; rates in calls per second, times in milliseconds."""

    clients: int
    latency_ms: int
    direct_rate: float
    direct_p50: float
    rate: float
    p50: float
    p95: float

    @property
    def added_p50(self) -> float:
        return self.p50 - self.direct_p50


def measure(url: str, *, quick: bool) -> list[Row]:
    """All rows on one product and one schema per provider latency."""
    rows = []
    for latency in (0, 100):
        with (
            start_provider(latency_ms=latency) as provider,
            product.running(url, latency_ms=latency) as running,
        ):
            for clients in (1, 8, 32):
                rows.append(_row(running, provider.url, clients, latency, quick))
    return rows


def _row(
    running: product.Product, provider_url: str, clients: int, latency: int, quick: bool
) -> Row:
    calls = (300 if quick else 1500) if latency == 0 else clients * (15 if quick else 40)
    direct = urlsplit(provider_url)
    host, port = str(direct.hostname), int(direct.port or 80)
    path = "/v1/chat/completions"

    def to_provider(number: int) -> bytes:
        return load.post(path, BODY, host=host, headers={})

    keys = itertools.count()

    def to_product(number: int) -> bytes:
        headers = running.headers(f"bench-{latency}-{clients}-{next(keys)}")
        return load.post(path, BODY, host=running.host, headers=headers)

    asyncio.run(
        load.run(
            host=running.host,
            port=running.port,
            clients=clients,
            calls=clients * 5,
            message=to_product,
        )
    )
    directs, products = [], []
    for _ in range(3):  # alternating, so that both see the same noise
        directs.append(
            asyncio.run(
                load.run(host=host, port=port, clients=clients, calls=calls, message=to_provider)
            )
        )
        products.append(
            asyncio.run(
                load.run(
                    host=running.host,
                    port=running.port,
                    clients=clients,
                    calls=calls,
                    message=to_product,
                )
            )
        )
        if directs[-1].errors or products[-1].errors:
            raise RuntimeError(f"errors under load: {directs[-1].errors}, {products[-1].errors}")
    best_direct = sorted(directs, key=lambda one: one.rate)[1]
    best = sorted(products, key=lambda one: one.rate)[1]
    return Row(
        clients,
        latency,
        best_direct.rate,
        best_direct.percentile(0.5),
        best.rate,
        best.percentile(0.5),
        best.percentile(0.95),
    )
