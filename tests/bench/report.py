"""docs/benchmarks.md from what was measured."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.bench.run import Found

HEAD = """# Benchmarks

Written by `make bench`. One run, one machine, everything in it measured side by side, so that the
ratios mean more than the figures. Medians of three alternating runs where nothing else is said.

- Machine: {machine}
- Database: {server}, `innodb_flush_log_at_trx_commit=1`
- Date: {date}

The load generator, the provider, the product and the database share the machine.
"""


def render(found: "Found", *, machine: str, server: str) -> str:
    """The whole document."""
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    parts = [HEAD.format(machine=machine, server=server, date=date)]
    if found.calls:
        parts.append(_gateway(found))
    if found.opened:
        parts.append(_streams(found))
    if found.settled_per_second:
        parts.append(
            "## Settlement\n\n"
            f"{found.settled_per_second:,.0f} requests per second, pages of 50, one process:"
            " ledger rows, requests and account in one transaction per page.\n"
        )
    if found.pages:
        parts.append(_pages(found))
    if found.start_seconds:
        median = sorted(found.start_seconds)[len(found.start_seconds) // 2]
        parts.append(
            "## Start\n\n"
            f"`manage.py standalone` on a finished set-up is ready after {median:.1f} s"
            f" (median of {len(found.start_seconds)}).\n"
        )
    return "\n".join(parts)


def _gateway(found: "Found") -> str:
    lines = [
        "## Gateway",
        "",
        "A plain chat completion: admitted, dispatched, called, saved, each with its own durable",
        "commit, then settled. *Direct* is the same call to the demo provider without the product.",
        "Read the added time from the provider that takes 100 ms: with an instant one the median",
        "is only concurrency divided by throughput.",
        "",
        "| provider | at once | direct/s | product/s | ratio | direct p50 | p50 | added | p95 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found.calls:
        name = f"{row.latency_ms} ms" if row.latency_ms else "instant"
        lines.append(
            f"| {name} | {row.clients} | {row.direct_rate:,.0f} | {row.rate:,.0f}"
            f" | {row.rate / row.direct_rate:.2f} | {row.direct_p50:.1f} ms | {row.p50:.1f} ms"
            f" | {row.added_p50:.1f} ms | {row.p95:.1f} ms |"
        )
    return "\n".join(lines) + "\n"


def _streams(found: "Found") -> str:
    got = found.opened
    assert got is not None
    growth = got.memory_peak_mib - got.memory_before_mib
    return (
        "## Streams\n\n"
        f"{got.streams:,} streams open at once in one process; {got.left:,} clients left early."
        f" {got.whole:,} clients got the whole stream; {got.streams - got.pending_after:,} requests"
        f" ended complete and settled, {got.pending_after} did not. {got.seconds:.0f} s in all;"
        f" memory grew from {got.memory_before_mib:.0f} to {got.memory_peak_mib:.0f} MiB"
        f" ({growth * 1024 / got.streams:.0f} KiB per stream).\n"
    )


def _pages(found: "Found") -> str:
    names = list(dict.fromkeys(page.name for page in found.pages))
    sizes = sorted({page.rows for page in found.pages})
    small, large = sizes[0], sizes[-1]
    at = {(page.name, page.rows): page for page in found.pages}
    lines = [
        "## Pages",
        "",
        "The server's whole answer, in process: 95th percentile of 20 (stock admin: most of 3).",
        "",
        f"| page | {small:,} rows | {large:,} rows | ratio | queries |",
        "|---|---|---|---|---|",
    ]
    for name in names:
        few, many = at[name, small], at[name, large]
        queries = (
            f"{few.queries}" if few.queries == many.queries else f"{few.queries}→{many.queries}"
        )
        lines.append(
            f"| {name} | {few.p95_ms:.0f} ms | {many.p95_ms:.0f} ms"
            f" | {many.p95_ms / few.p95_ms:.2f} | {queries} |"
        )
    return "\n".join(lines) + "\n"
