"""How quiet the machine was around a part: what others used, a fixed loop, one durable commit."""

import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.support.mariadb_server import Server

IDLE_SECONDS = 1.0
LOOPS = 60
COMMITS = 100
BUSY_SHARE_MAX = 0.10
LOOP_RATIO_MAX = 1.3


@dataclass(slots=True)
class Sample:
    """One look at the machine while the benchmark itself does nothing."""

    load: float
    busy_share: float
    loop_best_ms: float
    loop_p95_ms: float
    commit_ms: float


@dataclass(slots=True)
class Stamp:
    """When a part was measured, and the machine before and after it."""

    at: datetime
    before: Sample
    after: Sample
    seconds: float = 0.0

    @property
    def is_high(self) -> bool:
        """Whether others took so much that single figures should not be trusted."""
        return any(
            sample.busy_share > BUSY_SHARE_MAX
            or sample.loop_p95_ms > LOOP_RATIO_MAX * sample.loop_best_ms
            for sample in (self.before, self.after)
        )

    def text(self) -> str:
        """One paragraph for the document."""
        one, two = self.before, self.after
        return (
            f"Measured {self.at:%Y-%m-%d %H:%M} UTC in {self.seconds:.0f} s. Before and after it:"
            f" load average {one.load:.1f} and {two.load:.1f}; used by others"
            f" {one.busy_share:.0%} and {two.busy_share:.0%} of the processor; a fixed loop of"
            f" {min(one.loop_best_ms, two.loop_best_ms):.1f} ms took {one.loop_p95_ms:.1f} and"
            f" {two.loop_p95_ms:.1f} ms (p95); a durable commit took {one.commit_ms:.2f} and"
            f" {two.commit_ms:.2f} ms (p50)."
            f" **Noise: {'high' if self.is_high else 'low'}.**"
        )


@contextlib.contextmanager
def stamped(server: Server) -> Iterator[Stamp]:
    """Sample the machine around a block; `after` and `seconds` are filled in at its end."""
    before = sample(server)
    stamp = Stamp(datetime.now(UTC), before, before)
    started = time.monotonic()
    yield stamp
    stamp.seconds = time.monotonic() - started
    stamp.after = sample(server)


def sample(server: Server) -> Sample:
    """About two seconds: idle for one, then the loops, then the commits."""
    load = os.getloadavg()[0]
    busy_before, all_before = _ticks()
    time.sleep(IDLE_SECONDS)
    busy, total = _ticks()
    loops = sorted(_loop_ms() for _ in range(LOOPS))
    return Sample(
        load=load,
        busy_share=(busy - busy_before) / max(total - all_before, 1),
        loop_best_ms=loops[0],
        loop_p95_ms=loops[int(LOOPS * 0.95)],
        commit_ms=_commit_ms(server),
    )


def _ticks() -> tuple[int, int]:
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    ticks = [int(word) for word in first.split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _loop_ms() -> float:
    started = time.perf_counter()
    total = 0
    for number in range(100_000):
        total += number
    return (time.perf_counter() - started) * 1000


def _commit_ms(server: Server) -> float:
    with server.schema() as url, contextlib.closing(server.connect(url.rsplit("/", 1)[1])) as one:
        cursor = one.cursor()
        cursor.execute("CREATE TABLE bench_commit (id INT PRIMARY KEY AUTO_INCREMENT)")
        spans = []
        for _ in range(COMMITS):
            started = time.perf_counter()
            cursor.execute("INSERT INTO bench_commit VALUES ()")
            spans.append((time.perf_counter() - started) * 1000)
    return statistics.median(spans)
