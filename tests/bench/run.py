"""The parts of the benchmark. Imported after the environment names the database."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import django

django.setup()

from django.db import connections  # noqa: E402  - Django must be set up first

from tests.bench import (  # noqa: E402
    bulk,
    claims,
    compare,
    desk,
    gateway,
    letters,
    pages,
    peers,
    post_report,
    report,
    settlement,
    start,
    streams,
    work,
    work_report,
    workers,
)
from tests.bench.noise import stamped  # noqa: E402
from tests.support.mariadb_server import Server  # noqa: E402


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    streams: int = 1000
    chunk_ms: int = 2000
    settled: int = 10_000
    settled_rounds: int = 3
    small_rows: int = pages.SMALL_ROWS
    page_times: int = 40
    starts: int = 3
    latencies_ms: tuple[int, ...] = gateway.LATENCIES_MS
    gateway_rounds: int = 3
    gateway_seconds: float = 4.0
    work_seconds: float = 5.0
    decisions: int = 100
    steps: int = 100
    waiting: int = 20_000
    queued: int = 50_000
    approvals: int = 200_000
    few_approvals: int = 2000
    dead_letters: int = 100_000
    replayed: int = 90_000
    fleet_jobs: int = 1000
    fleet_rounds: int = 3


WHOLE = Size()
QUICK = Size(
    streams=100,
    chunk_ms=100,
    settled=1000,
    settled_rounds=1,
    small_rows=1000,
    page_times=5,
    starts=1,
    latencies_ms=(0,),
    gateway_rounds=1,
    gateway_seconds=1.2,
    work_seconds=0.6,
    decisions=5,
    steps=10,
    waiting=3000,
    queued=10_000,
    approvals=20_000,
    dead_letters=3000,
    replayed=2500,
    fleet_jobs=60,
    fleet_rounds=1,
)
QUICK_ROWS = 20_000
QUICK_LEAVES_OUT = (
    f"Quick: {QUICK_ROWS:,} requests instead of 1,000,000 in the table, {QUICK.approvals:,}"
    f" approvals instead of {WHOLE.approvals:,}, {QUICK.replayed:,} replays instead of"
    f" {WHOLE.replayed:,}, {QUICK.streams} streams instead of 1,000, one"
    " round of each measurement, one start on the embedded file only, no provider that takes"
    " 100 ms, no look at the noise. Nothing is written."
)


def comparison(server: Server, commit: str) -> str:
    """The section that compares this tree with a commit."""
    with stamped(server) as stamp:
        text = compare.measure(commit)
    return f"{text}\n{stamp.text()}\n"


def sections(server: Server, *, quick: bool, rows: int, only: str) -> Iterator[tuple[str, str]]:
    """(name, its section of the document) of each part, as soon as it is measured."""
    size = QUICK if quick else WHOLE
    parts: dict[str, Callable[[], str]] = {
        "settlement": lambda: report.settlement_text(
            settlement.measure(server, count=size.settled, rounds=size.settled_rounds)
        ),
        "pages": lambda: report.pages_text(
            pages.measure(server, count=rows, small=size.small_rows, times=size.page_times)
        ),
        "streams": lambda: report.streams_text(
            streams.measure(server, streams=size.streams, chunk_ms=size.chunk_ms)
        ),
        "start": lambda: report.start_text(start.measure(server, times=size.starts)),
        "gateway": lambda: report.gateway_text(
            gateway.measure(
                server,
                latencies=size.latencies_ms,
                rounds=size.gateway_rounds,
                seconds=size.gateway_seconds,
            )
        ),
        "decisions": lambda: work_report.decisions_text(
            work.measure(
                server,
                seconds=size.work_seconds,
                times=size.decisions,
                steps=size.steps,
                waiting=size.waiting,
            )
        ),
        "approvals": lambda: work_report.approvals_text(
            desk.measure(
                server,
                count=size.approvals,
                small=size.few_approvals,
                times=size.page_times,
            )
        ),
        "claims": lambda: post_report.claims_text(
            claims.measure(server, seconds=size.work_seconds, queued=size.queued)
        ),
        "workers": lambda: workers.text(
            workers.measure(server, jobs=size.fleet_jobs, rounds=size.fleet_rounds)
        ),
        "delivery": lambda: post_report.delivery_text(
            peers.measure(server),
            bulk.measure(server, count=size.dead_letters, items=size.replayed),
        ),
        "letters": lambda: post_report.letters_text(
            letters.measure(server, count=rows, small=size.small_rows, times=size.page_times)
        ),
    }
    for name, part in parts.items():
        if only not in ("", name):
            continue
        if quick:
            yield name, part()
            continue
        with stamped(server) as stamp:
            text = part()
            connections.close_all()
        yield name, f"{text}\n{stamp.text()}\n"
