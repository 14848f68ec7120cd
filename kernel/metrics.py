"""Metrics of one process, read from memory: a scrape touches no database and no provider (J1)."""

from collections.abc import Iterator
from typing import Any, Protocol

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector


class Measured(Protocol):
    """What a kernel shows to the collector; plain numbers in memory."""

    drain_timeouts: int
    background: Any
    database: Any
    gateway: Any

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


def register_kernel(kernel: Measured) -> None:
    """Make /metrics show this kernel; a later kernel of the same process replaces it."""
    if _current:
        REGISTRY.unregister(_current.pop())
    collector = KernelCollector(kernel)
    REGISTRY.register(collector)
    _current.append(collector)


_current: list[KernelCollector] = []


def _page(name: str, progress: Any) -> Iterator[Any]:
    family = GaugeMetricFamily(
        f"bailing_{name}_page", f"The latest {name} page", labels=["counter"]
    )
    for counter in ("scanned", "settled", "deferred", "failed"):
        family.add_metric([counter], getattr(progress, counter))
    family.add_metric(["has_more"], int(progress.has_more))
    yield family
