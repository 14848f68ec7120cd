"""The sections of docs/benchmarks.md about delivery: hanging peers, bulk replay, claims, lists."""

import statistics

from tests.bench import bulk, claims, letters, pages, peers
from tests.bench.report import spans, verdict


def delivery_text(beside: peers.Result, got: bulk.Result) -> str:
    """Healthy peers beside hanging ones; a bulk replay that is killed on the way."""
    rate = statistics.median(got.admitted_per_second)
    hanging, healthy = peers.HANGING * peers.EACH_HANGING, peers.HEALTHY * peers.EACH_HEALTHY
    lines = [
        "## Delivery",
        "",
        verdict(
            f"{healthy} messages to {peers.HEALTHY} healthy peers beside {hanging} to"
            f" {peers.HANGING} that hang for {peers.HANG_SECONDS:.0f} s",
            f"{peers.TARGET_SECONDS:.0f} s",
            f"{beside.beside:.2f} s",
            beside.beside <= peers.TARGET_SECONDS,
        ),
        verdict(
            f"Admissions per second, {got.items:,} dead letters replayed in bulk",
            f"{bulk.ADMISSIONS_PER_SECOND_MIN}",
            f"{rate:,.0f}",
            rate >= bulk.ADMISSIONS_PER_SECOND_MIN,
        ),
        verdict(
            "Memory of the process over what it had before",
            f"{bulk.MEMORY_MIB_MAX} MiB",
            f"{got.memory_mib:.0f} MiB",
            got.memory_mib <= bulk.MEMORY_MIB_MAX,
        ),
        "",
        f"One kernel sends everything. The hanging peers' messages are the oldest; {beside.held} of"
        f" them were on their way when the last healthy one was delivered. The healthy ones alone"
        f" took {beside.alone:.2f} s.",
        "",
        f"{got.items:,} of {got.letters:,} dead letters are replayed by `manage.py maintain`, in"
        f" pages of 200, rate not limited, killed with SIGKILL after a third and after two thirds;"
        f" the next process waits for the lease of the killed one to end ({bulk.LEASE_SECONDS} s"
        f" here). Planning took {got.request_ms:.0f} ms of the request; the set was then frozen in"
        f" the background, {got.frozen_per_second:,.0f} items a second. The three processes"
        f" admitted {', '.join(f'{one:,.0f}' for one in got.admitted_per_second)} a second;"
        f" {got.seconds:.0f} s in all. Checked afterwards: {got.items:,} done, none skipped or"
        " failed, each admitted once by one notification and one audit row, count and digest of"
        f" the frozen set as before, {got.interruptions} interruptions counted.",
    ]
    return "\n".join(lines) + "\n"


def claims_text(found: list[claims.Result]) -> str:
    """Claims per second of jobs and of notifications."""
    lines = ["## Claims", ""]
    for each in found:
        if each.limit == 1:
            lines.append(
                verdict(
                    f"Claims of one of the {each.what} per second, {claims.CLAIMERS} workers",
                    f"{claims.PER_SECOND_MIN}",
                    f"{each.per_second:,.0f}",
                    each.per_second >= claims.PER_SECOND_MIN,
                )
            )
    lines += [
        "",
        f"{claims.CLAIMERS} threads of one process, so one interpreter's worth of processor. Jobs"
        f" come from one queue, notifications from {claims.PLACES} destinations; nothing is taken"
        " twice.",
        "",
        "| what | at most per claim | claims/s | rows/s | best | p50 | p95 | CPU per claim |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        p95 = statistics.quantiles(each.spans_ms, n=20, method="inclusive")[18]
        lines.append(
            f"| {each.what} | {each.limit} | {each.per_second:,.0f}"
            f" | {each.rows / each.seconds:,.0f} | {min(each.spans_ms):.1f} ms"
            f" | {statistics.median(each.spans_ms):.1f} ms | {p95:.1f} ms"
            f" | {each.cpu_ms:.1f} ms |"
        )
    return "\n".join(lines) + "\n"


def letters_text(got: pages.Result) -> str:
    """The screens of dead letters at both sizes."""
    at = {(page.name, page.rows): page for page in got.pages}
    small, large = sorted({page.rows for page in got.pages})
    own = [page.name for page in got.pages if page.name != pages.STOCK and page.rows == small]
    full = [name for name in own if name not in letters.SPARSE]
    ratios = {name: at[name, large].best / at[name, small].best for name in full}
    worst = max(ratios, key=lambda name: ratios[name])
    waiting = {
        name: statistics.median(at[name, large].database_ms)
        for name in own
        if name in letters.SPARSE
    }
    longest = max(waiting, key=lambda name: waiting[name], default="none")
    most = max(at[name, large].queries for name in own)
    steady = all(at[name, small].queries == at[name, large].queries for name in own)
    lines = [
        "## Letters",
        "",
        verdict(
            f"Ratio of the best call, {large:,} to {small:,} dead letters, worst page ({worst})",
            f"{letters.RATIO_MAX}",
            f"{ratios[worst]:.2f}",
            ratios[worst] <= letters.RATIO_MAX,
        ),
        verdict(
            f"Waiting for the database at {large:,}, p50, slowest sparse filter ({longest})",
            f"{letters.WAITING_MAX_MS:.0f} ms",
            f"{waiting.get(longest, 0.0):.1f} ms",
            waiting.get(longest, 0.0) <= letters.WAITING_MAX_MS,
        ),
        verdict(
            "Statements per page",
            f"at most {letters.QUERIES_MAX}, the same at both sizes",
            f"at most {most}, {'the same' if steady else 'not the same'}",
            most <= letters.QUERIES_MAX and steady,
        ),
        "",
        "The dead-letter screens as in *Pages*: milliseconds, best / p50 / p95, both sizes in",
        "turns. 40 groups; of a hundred dead letters two are open, ten archived, the others",
        "resolved. *Waiting* is spent in statements at the large size, best / p50. A sparse",
        "filter finds less than a page in the small table: its ratio compares rows shown.",
        f"The large table was loaded in {got.load_seconds:.0f} s.",
        "",
        f"| page | {small:,} | {large:,} | ratio of best | of p50 | waiting | statements |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in [*own, pages.STOCK]:
        few, many = at[name, small], at[name, large]
        queries = f"{few.queries}" + (f"→{many.queries}" if few.queries != many.queries else "")
        lines.append(
            f"| {name} | {spans(few)} | {spans(many)} | {many.best / few.best:.2f}"
            f" | {many.percentile(0.5) / few.percentile(0.5):.2f}"
            f" | {min(many.database_ms):.1f} / {statistics.median(many.database_ms):.1f}"
            f" | {queries} |"
        )
    return "\n".join(lines) + "\n"
