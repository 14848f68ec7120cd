"""The sections of docs/benchmarks.md about jobs that pause for a person."""

import statistics

from tests.bench import desk, pages, work
from tests.bench.report import spans, verdict


def decisions_text(got: work.Result) -> str:
    """Decisions by each way, an agent's steps."""
    lines = ["## Decisions", ""]
    for each in got.http:
        lines.append(_ms(f"Decision over HTTP, p95, {each.clients} at once", _p95(each.load.calls)))
    lines.append(_ms("Console's decision form, p95", _p95(got.ways["form"].spans_ms)))
    own, step_max = got.steps.own_ms, work.STEP_MS_MAX
    lines.append(
        verdict(
            "Own part of an agent's step, p50", f"{step_max} ms", f"{own:.1f} ms", own <= step_max
        )
    )
    return "\n".join([*lines, "", *_decided(got), "", _steps(got.steps)]) + "\n"


def _ms(what: str, measured: float) -> str:
    most = work.DECISION_MS_MAX
    return verdict(what, f"{most} ms", f"{measured:.0f} ms", measured <= most)


def _decided(got: work.Result) -> list[str]:
    lines = [
        "A decision is recorded with its continuation and audit row, then carried through: its",
        "job is queued again. Several durable commits, one after another. A global pause keeps the",
        "worker from the jobs, so that only decisions are measured. The three ways in this process",
        "are called in turns; *plain SQL* are the very statements of the verb, commits included,",
        "sent by the bare driver: what the database alone takes. *CPU* is what the product's",
        "process used per decision.",
        "",
        "| way | at once | per second | best | p50 | p95 | statements | CPU |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in got.http:
        calls = each.load.calls
        lines.append(
            f"| HTTP | {each.clients} | {each.load.rate:,.0f} | {_times(calls)} |"
            f" | {each.cpu_ms:.1f} ms |"
        )
    names = {"form": "console's form, in process", "verb": "the verb", "plain": "plain SQL"}
    for key, name in names.items():
        way = got.ways[key]
        rate = 1000 / statistics.mean(way.spans_ms)
        cpu = way.cpu_seconds * 1000 / len(way.spans_ms)
        lines.append(
            f"| {name} | 1 | {rate:,.0f} | {_times(way.spans_ms)} | {way.statements}"
            f" | {cpu:.1f} ms |"
        )
    return lines


def _steps(got: work.Steps) -> str:
    return (
        f"An agent's job of {len(got.spans_ms) + 1} steps: each asks a provider that answers at"
        f" once ({got.model_ms:.1f} ms by itself) and calls one read-only tool"
        f" ({got.tool_ms:.1f} ms)."
        f" From one admitted step to the next: best {min(got.spans_ms):.1f}, p50"
        f" {statistics.median(got.spans_ms):.1f}, p95 {_p95(got.spans_ms):.1f} ms, of which"
        f" {got.own_ms:.1f} ms (p50) are the product's. A step takes {got.commits:.1f} commits,"
        f" {got.statements:.0f} statements and {got.cpu_ms:.1f} ms of the process's processor time."
    )


def approvals_text(got: desk.Result) -> str:
    """The approvals list at both sizes."""
    at = {(page.name, page.rows): page for page in got.pages}
    small, large = sorted({page.rows for page in got.pages})
    own = [name for name in dict.fromkeys(page.name for page in got.pages) if not _is_stock(name)]
    ratios = {name: _ratio(at[name, small], at[name, large]) for name in own}
    worst = max(ratios, key=lambda name: ratios[name])
    most = max(page.queries for page in got.pages if page.name in own)
    steady = all(at[name, small].queries == at[name, large].queries for name in own)
    most_read = max(got.rows_read[name, large] for name in own)
    lines = [
        "## Approvals",
        "",
        verdict(
            f"Ratio of p50, {large:,} to {small:,} approvals, worst page ({worst})",
            f"{desk.RATIO_MAX}",
            f"{ratios[worst]:.2f}",
            ratios[worst] <= desk.RATIO_MAX,
        ),
        verdict(
            "Statements per page",
            f"at most {desk.QUERIES_MAX}, the same at both sizes",
            f"at most {most}, {'the same' if steady else 'not the same'}",
            most <= desk.QUERIES_MAX and steady,
        ),
        f"- Rows read per page: at most {most_read:,} at {large:,} approvals.",
        "",
        "The whole answer of the server, in process, signed in, 50 rows a page: milliseconds, best",
        "/ p50 / p95, both sizes in turns. Of twenty approvals one is open, the others are",
        "decided, expired or cancelled; each has its job and call. *Rows read* counts rows and",
        "index entries that the database handed up for one page. *Raw rows* is our read-only admin",
        "site, *Stock admin list* is what one gets by registering the model.",
        f"The large tables were loaded in {got.load_seconds:.0f} s.",
        "",
        f"| page | {small:,} | {large:,} | ratio of best | of p50 | rows read | statements |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(page.name for page in got.pages):
        few, many = at[name, small], at[name, large]
        read = f"{got.rows_read[name, small]:,} / {got.rows_read[name, large]:,}"
        queries = f"{few.queries}" + (f"→{many.queries}" if few.queries != many.queries else "")
        lines.append(
            f"| {name} | {spans(few)} | {spans(many)} | {many.best / few.best:.2f}"
            f" | {_ratio(few, many):.2f} | {read} | {queries} |"
        )
    return "\n".join(lines) + "\n"


def _is_stock(name: str) -> bool:
    return name in (pages.STOCK, desk.RAW)


def _ratio(few: pages.Page, many: pages.Page) -> float:
    return many.percentile(0.5) / few.percentile(0.5)


def _p95(spans_ms: list[float]) -> float:
    return statistics.quantiles(spans_ms, n=20, method="inclusive")[18]


def _times(spans_ms: list[float]) -> str:
    return (
        f"{min(spans_ms):.1f} ms | {statistics.median(spans_ms):.1f} ms | {_p95(spans_ms):.1f} ms"
    )
