"""The benchmark's document: one section is replaced, the others stay; a missed target says so."""

from tests.bench import document, report, settlement, streams

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
