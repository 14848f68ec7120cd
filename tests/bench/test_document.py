"""The benchmark's document: one section is replaced, the others stay; a missed target says so."""

from tests.bench import (
    bulk,
    claims,
    compare,
    desk,
    document,
    letters,
    load,
    pages,
    peers,
    post_report,
    report,
    settlement,
    streams,
    work,
    work_report,
)

HEAD = document.head(machine="2 cores", server="MariaDB")


def test_a_new_measurement_replaces_its_section_and_keeps_the_others() -> None:
    first = document.replaced("", HEAD, "start", "## Start\n\nslow\n")
    both = document.replaced(first, HEAD, "gateway", "## Gateway\n\n| fast |\n")
    again = document.replaced(both, HEAD, "start", "## Start\n\nquick\n")
    assert again == f"{HEAD}\n## Gateway\n\n| fast |\n\n## Start\n\nquick\n"


def test_every_part_has_its_place_in_the_document() -> None:
    text = ""
    for name in reversed(document.ORDER):
        text = document.replaced(text, HEAD, name, f"## {name.capitalize()}\n\nfigures\n")
    titles = [line[3:].lower() for line in text.splitlines() if line.startswith("## ")]
    assert titles == list(document.ORDER)


def test_a_missed_target_is_called_missed() -> None:
    slow = settlement.Result(100, [2499.0], [20.0] * 10, 300.0, 9, 0.5)
    assert "missed" in report.settlement_text(slow)
    fast = settlement.Result(100, [2500.0], [20.0] * 10, 300.0, 9, 0.5)
    assert "missed" not in report.settlement_text(fast)


def test_one_stream_that_was_not_settled_misses_the_target() -> None:
    whole = {"left": 3, "whole": 7, "open_peak": 10, "opening_seconds": 1.0, "seconds": 2.0}
    memory = {"memory_before_mib": 80.0, "memory_peak_mib": 81.0}
    good = streams.Result(streams=10, settled=10, **whole, **memory)
    assert "missed" not in report.streams_text(good)
    lost = streams.Result(streams=10, settled=9, **whole, **memory)
    assert "missed" in report.streams_text(lost)


def decisions(span_ms: float) -> work.Result:
    """Everything measured takes `span_ms`."""
    spans = [span_ms] * 20
    return work.Result(
        http=[work.Decided(clients, load.Load(1.0, spans), 2.0) for clients in work.CLIENTS],
        ways={name: work.Timed(34, 0.1, spans) for name in ("form", "verb", "plain")},
        steps=work.Steps(spans, 0.1, 0.1, 5.0, 70.0, 8.0),
    )


def test_each_target_of_the_decisions_is_judged() -> None:
    slow, quick = (work_report.decisions_text(decisions(span)) for span in (1100.0, 5.0))
    assert (slow.count("missed"), slow.count("- met")) == (4, 0)
    assert (quick.count("missed"), quick.count("- met")) == (0, 4)


def approvals(*, large_ms: float, statements: int) -> desk.Result:
    """One page of ours at both sizes, and the stock list, which has no target."""
    few, many = (pages.Page("Open", rows, 6, [10.0] * 9) for rows in (2_000, 200_000))
    many.spans_ms, many.queries = [large_ms] * 9, statements
    stock = [pages.Page(pages.STOCK, rows, 30, [rows * 1.0] * 9) for rows in (2_000, 200_000)]
    found = [few, many, *stock]
    return desk.Result(found, 60.0, {(page.name, page.rows): 300 for page in found})


def test_a_list_that_grows_with_its_table_misses_the_target() -> None:
    assert "missed" not in work_report.approvals_text(approvals(large_ms=12.9, statements=6))
    assert "missed" in work_report.approvals_text(approvals(large_ms=13.1, statements=6))
    assert "missed" in work_report.approvals_text(approvals(large_ms=10.0, statements=7))


def test_each_target_of_claims_and_delivery_is_judged() -> None:
    for rate, found in ((399.0, "missed"), (400.0, "- met")):
        got = claims.Result("jobs", 1, 10.0, [1.0] * int(rate * 10), 1, 1.0)
        assert post_report.claims_text([got]).count(found) == 1
    bad = bulk.Result(100, 90, 5.0, 1e4, [499.0] * 3, 9.0, 101.0, 2)
    good = bulk.Result(100, 90, 5.0, 1e4, [500.0] * 3, 9.0, 99.0, 2)
    assert post_report.delivery_text(peers.Result(0.5, 2.1, 40), bad).count("missed") == 3
    assert post_report.delivery_text(peers.Result(0.5, 1.9, 40), good).count("- met") == 3


def letters_text(*, large_ms: float, waiting_ms: float) -> str:
    """A list, a sparse filter that shows more at the large size, and the stock list."""
    names = ("List", letters.SPARSE[0], pages.STOCK)
    found = [pages.Page(name, rows, 5, [10.0] * 9) for name in names for rows in (10, 1000)]
    for page in found:
        page.database_ms = [1.0] * 9
    found[1].spans_ms = [large_ms] * 9
    found[3].spans_ms, found[3].database_ms = [99.0] * 9, [waiting_ms] * 9
    return post_report.letters_text(pages.Result(found, 1.0))


def test_a_dead_letter_list_is_judged_by_its_growth_and_a_sparse_filter_by_the_database() -> None:
    assert "missed" not in letters_text(large_ms=12.9, waiting_ms=19.9)
    assert letters_text(large_ms=13.1, waiting_ms=19.9).count("missed") == 1
    assert letters_text(large_ms=12.9, waiting_ms=20.1).count("missed") == 1


def test_a_comparison_reads_the_judged_figures_of_both_trees_and_says_their_ratio() -> None:
    head = "## Gateway\n\nOf an act: target 300, measured **1** by nobody.\n"
    old, new = (
        compare.figures(f"{head}- Calls, 8 at once: target {target}, measured **{found}** - met.\n")
        for target, found in (("1,000", "1,200"), ("15 ms", "25.4 ms"))
    )
    assert (old[0].value, old[0].unit, new[0].value, new[0].unit) == (1200, "", 25.4, " ms")
    text = compare.text(
        "aaa",
        "bbb",
        [
            (
                old[0],
                compare.figures(
                    f"{head}- Calls, 8 at once: target 1,000, measured **3,000** - met."
                )[0],
            )
        ],
    )
    assert "| Calls, 8 at once | 1,200 | 3,000 | 2.50 |" in text
    assert text.startswith("## Before and after\n")
