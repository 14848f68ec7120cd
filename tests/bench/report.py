"""Each part's section of docs/benchmarks.md: its targets, met or missed, and its figures."""

import statistics

from tests.bench import gateway, pages, settlement, start, streams


def verdict(what: str, target: str, measured: str, met: bool) -> str:
    """One line: what, its target, the figure, met or missed."""
    return f"- {what}: target {target}, measured **{measured}** - {'met' if met else 'missed'}."


def gateway_text(found: list[gateway.Row]) -> str:
    """Rates, added time and processor time per call."""
    at = {(row.latency_ms, row.clients): row for row in found}
    lines = ["## Gateway", ""]
    if row := at.get((0, 32)):
        target = gateway.TARGET_PER_SECOND
        lines.append(
            verdict(
                "Requests per second, 32 at once, instant provider",
                f"{target}",
                f"{row.rate:,.0f}",
                row.rate >= target,
            )
        )
    if row := at.get((100, 8)):
        added = gateway.TARGET_ADDED_MS
        lines.append(
            verdict(
                "Added p50, 8 at once, provider taking 100 ms",
                f"{added} ms",
                f"{row.added_p50:.1f} ms",
                row.added_p50 <= added,
            )
        )
    lines += [
        "",
        "A plain chat completion: admitted, dispatched, called, saved, each with its own durable",
        "commit, then settled. *Direct* is the same call to the demo provider without the product.",
        "Rates are medians of the rounds (lowest to highest in brackets), percentiles are of all",
        "calls. Read the added time from the provider that takes 100 ms: with an instant one the",
        "median is only concurrency divided by throughput. *CPU* is what the product's process",
        "used per call: a busy machine moves it less, but it does move it.",
        "",
        "| provider | at once | direct/s | product/s | ratio | direct p50 | p50"
        " | added | p95 | CPU |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        name = f"{row.latency_ms} ms" if row.latency_ms else "instant"
        lines.append(
            f"| {name} | {row.clients} | {row.direct_rate:,.0f} | {row.rate:,.0f}"
            f" ({min(row.rates):,.0f}-{max(row.rates):,.0f})"
            f" | {row.rate / row.direct_rate:.2f} | {row.direct_p50:.1f} ms | {row.p50:.1f} ms"
            f" | {row.added_p50:.1f} ms | {row.p95:.1f} ms | {row.cpu_ms:.1f} ms |"
        )
    return "\n".join(lines) + "\n"


def streams_text(got: streams.Result) -> str:
    """What became of the streams, and their memory."""
    growth = (got.memory_peak_mib - got.memory_before_mib) * 1024 / got.streams
    met = got.open_peak == got.settled == got.streams and got.whole == got.streams - got.left
    found = verdict(
        "Streams open at once in one process, 30 % of the clients leaving",
        f"{got.streams:,}, all saved and settled",
        f"{got.open_peak:,} open, {got.settled:,} saved and settled",
        met,
    )
    return (
        f"## Streams\n\n{found}\n\n"
        f"{got.streams:,} streams were opened; {got.open_peak:,} of them were open at the same"
        f" moment, {got.opening_seconds:.0f} s after the first was asked for."
        f" Then {got.left:,} clients left; {got.whole:,} read their stream to the end."
        f" {got.settled:,} requests are complete and settled, one ledger row each, and the"
        " account's consumed sum is the sum of the ledger."
        f" {got.seconds:.0f} s in all; memory grew from {got.memory_before_mib:.0f} to"
        f" {got.memory_peak_mib:.0f} MiB: {growth:.0f} KiB per stream.\n"
    )


def settlement_text(got: settlement.Result) -> str:
    """Requests settled per second and where the time goes."""
    rate, target = statistics.median(got.per_second), settlement.TARGET_PER_SECOND
    tenth = statistics.quantiles(got.page_ms, n=10)[0]
    found = verdict(
        "Requests settled per second, pages of 50, one process",
        f"{target:,}",
        f"{rate:,.0f}",
        rate >= target,
    )
    return (
        f"## Settlement\n\n{found}\n\n"
        f"{got.rows:,} pending requests of one account; ledger rows, requests and account in one"
        f" transaction per page, {got.queries_per_page} statements. Rounds, each on a fresh schema:"
        f" {', '.join(f'{one:,.0f}' for one in got.per_second)} per second. A page takes"
        f" {statistics.median(got.page_ms):.1f} ms (p50), the fastest tenth {tenth:.1f} ms or less:"
        f" {settlement.PAGE_ROWS * 1000 / tenth:,.0f} per second, the nearest to what a"
        f" quiet machine gives. Of the time, {got.database_share:.0%} was waiting for"
        f" statements; the process itself used {got.cpu_us:.0f} µs of processor time per"
        " request.\n"
    )


def pages_text(got: pages.Result) -> str:
    """Every page at both sizes."""
    at = {(page.name, page.rows): page for page in got.pages}
    small, large = sorted({page.rows for page in got.pages})
    own = [page for page in got.pages if page.name != pages.STOCK]
    slowest = max(
        (page for page in own if page.rows == large), key=lambda one: one.percentile(0.95)
    )
    most = max(page.queries for page in own)
    steady = all(at[one.name, small].queries == at[one.name, large].queries for one in own)
    p95 = slowest.percentile(0.95)
    lines = [
        "## Pages",
        "",
        verdict(
            f"Server's p95 at {large:,} requests, slowest page ({slowest.name})",
            f"{pages.TARGET_MS} ms",
            f"{p95:.0f} ms (best {slowest.best:.0f} ms)",
            p95 <= pages.TARGET_MS,
        ),
        verdict(
            "Statements per page",
            f"at most {pages.QUERIES_MAX}, the same at both sizes",
            f"at most {most}, {'the same' if steady else 'not the same'}",
            most <= pages.QUERIES_MAX and steady,
        ),
        "",
        "The whole answer of the server, in process, signed in, 50 rows a page: milliseconds, best",
        f"/ p50 / p95. The same page is opened at {small:,} and at {large:,} requests in turns, so",
        "that both sides of a ratio see the same noise. The best call is the nearest to",
        "what a quiet machine gives: noise only adds. *Waiting* is spent in statements at the",
        "large size, best / p50. A rare filter finds less than a whole page in the small table, so",
        "its ratio compares rows shown, not tables.",
        f"The large table was loaded in {got.load_seconds:.0f} s.",
        "",
        f"| page | {small:,} | {large:,} | ratio of best | of p50 | waiting | statements |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(page.name for page in got.pages):
        few, many = at[name, small], at[name, large]
        queries = f"{few.queries}" + (f"→{many.queries}" if few.queries != many.queries else "")
        lines.append(
            f"| {name} | {spans(few)} | {spans(many)} | {many.best / few.best:.2f}"
            f" | {many.percentile(0.5) / few.percentile(0.5):.2f}"
            f" | {min(many.database_ms):.1f} / {statistics.median(many.database_ms):.1f}"
            f" | {queries} |"
        )
    return "\n".join(lines) + "\n"


def spans(page: pages.Page) -> str:
    """Milliseconds of a page: best / p50 / p95."""
    return f"{page.best:.0f} / {page.percentile(0.5):.0f} / {page.percentile(0.95):.0f}"


def start_text(got: start.Result) -> str:
    """Seconds to ready."""
    middle, target = statistics.median(got.embedded), start.TARGET_SECONDS
    line = verdict(
        "Second start of `manage.py standalone` to ready, embedded file",
        f"{target} s",
        f"{middle:.1f} s",
        middle <= target,
    )
    seconds = ", ".join(f"{one:.1f}" for one in got.embedded)
    lines = ["## Start", "", line, "", f"Embedded file: {seconds} s."]
    if got.server:
        seconds = ", ".join(f"{one:.1f}" for one in got.server)
        lines[-1] += f" Database server: {seconds} s."
    lines[-1] += (
        " From the start of the process until `/readyz` answers; the demo provider starts too."
    )
    return "\n".join(lines) + "\n"
