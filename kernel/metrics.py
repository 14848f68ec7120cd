"""Metrics of one process, read from memory: a scrape touches no database and no provider (J1)."""

import hmac
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

TOKEN_CHARS_MIN = 16
ANSWERS = Counter("bailing_api_answers", "Answers of the API, by class of status", ["status"])
ANSWERS_BY_CLASS = [ANSWERS.labels(f"{number}xx") for number in range(1, 6)]
SECONDS = Histogram(
    "bailing_api_seconds",
    "From a request's last byte to its answer's headers; of a generation, the provider's time too",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
)


def count_answer(*, status: int, seconds: float) -> None:
    """Count one answer of the API: two numbers in memory."""
    ANSWERS_BY_CLASS[status // 100 - 1].inc()
    SECONDS.observe(seconds)


class Measured(Protocol):
    """What a kernel shows to the collector; plain numbers in memory."""

    drain_timeouts: int
    background: Any
    database: Any
    gateway: Any
    passes: Any

    def get_reconciliation_progress(self) -> Any: ...

    def get_continuation_progress(self) -> Any: ...


class KernelCollector(Collector):
    """Fixed labels only: kinds of work and counters of the latest page."""

    def __init__(self, kernel: Measured):
        self.kernel = kernel

    def describe(self) -> Iterator[Any]:
        """Empty: registering must not collect."""
        return iter(())

    def collect(self) -> Iterator[Any]:
        kernel = self.kernel
        pending = GaugeMetricFamily(
            "bailing_background_pending", "Unfinished background work", labels=["kind"]
        )
        for kind, count in kernel.background.pending().items():
            pending.add_metric([kind], count)
        yield pending
        failures = CounterMetricFamily(
            "bailing_background_failures", "Background work that failed", labels=["kind"]
        )
        for kind in kernel.background.pending():
            failures.add_metric([kind], kernel.background.failures[kind])
        yield failures
        yield GaugeMetricFamily(
            "bailing_provider_calls_running", "Provider calls now", value=kernel.gateway.running
        )
        yield GaugeMetricFamily(
            "bailing_database_verbs_pending", "Verbs queued or running", kernel.database.pending
        )
        yield CounterMetricFamily(
            "bailing_drain_timeouts", "close() calls that ran out of time", kernel.drain_timeouts
        )
        yield from _page("settlement", kernel.get_reconciliation_progress())
        yield from _page("continuation", kernel.get_continuation_progress())
        yield from _passes(kernel.passes)


def register_kernel(kernel: Measured) -> None:
    """Make /metrics show this kernel; a later kernel of the same process replaces it."""
    if _current:
        REGISTRY.unregister(_current.pop())
    collector = KernelCollector(kernel)
    REGISTRY.register(collector)
    _current.append(collector)


_current: list[KernelCollector] = []


def may_scrape(authorization: str) -> bool:
    """Whether this Authorization header carries BAILING_API_TOKEN."""
    expected = os.environ.get("BAILING_API_TOKEN", "")
    given = authorization.removeprefix("Bearer ").strip()
    is_set = len(expected) >= TOKEN_CHARS_MIN
    return is_set and hmac.compare_digest(given.encode(), expected.encode())


def serve_metrics(kernel: Measured, *, address: str) -> int:
    """Serve /metrics of a process without a web door on `address` (host:port), in a thread.

    '' = not at all. Every caller needs the token, except where the address is loopback. Returns the
    port, 0 when there is none: an address in use is logged and ends nothing. ValueError for text
    that is no address.
    """
    register_kernel(kernel)
    if not address:
        return 0
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("BAILING_METRICS_ADDRESS must look like 127.0.0.1:9464")
    is_open = host in ("127.0.0.1", "localhost")
    try:
        server = make_server(host, int(port), _scraped(is_open), WSGIServer, _Silent)
    except OSError as error:
        log.error("no metrics on %s: %s", address, error.strerror)
        return 0
    threading.Thread(target=server.serve_forever, name="bailing-metrics", daemon=True).start()
    return server.server_port


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """A scrape never logs."""


def _scraped(is_open: bool) -> Callable[..., Iterable[bytes]]:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != "/metrics":
            start_response("404 Not Found", [])
            return [b""]
        if not (is_open or may_scrape(environ.get("HTTP_AUTHORIZATION", ""))):
            start_response("401 Unauthorized", [])
            return [b""]
        start_response("200 OK", [("Content-Type", CONTENT_TYPE_LATEST)])
        return [generate_latest()]

    return answer


def _passes(passes: Iterable[Any]) -> Iterator[Any]:
    """Of each pass of this process: when it last reached its end here, failures, back-off."""
    ages = GaugeMetricFamily(
        "bailing_pass_age_seconds", "Since a run reached its end here", labels=["name"]
    )
    waits = GaugeMetricFamily(
        "bailing_pass_backoff_seconds", "What is left of a back-off", labels=["name"]
    )
    failures = CounterMetricFamily(
        "bailing_pass_failures", "Runs that ended in a back-off", labels=["name"]
    )
    now = time.monotonic()
    for each in passes:
        if each.ended_at is not None:
            ages.add_metric([each.name], now - each.ended_at)
        waits.add_metric([each.name], max(0.0, each.backoff.until - now))
        failures.add_metric([each.name], each.failures)
    yield from (ages, waits, failures)


def _page(name: str, progress: Any) -> Iterator[Any]:
    family = GaugeMetricFamily(
        f"bailing_{name}_page", f"The latest {name} page", labels=["counter"]
    )
    for counter in ("scanned", "settled", "deferred", "failed"):
        family.add_metric([counter], getattr(progress, counter))
    family.add_metric(["has_more"], int(progress.has_more))
    yield family
