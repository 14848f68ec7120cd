"""docs/guarantees.md: every promise names a test, and every named test exists."""

import re
from pathlib import Path

from tests.tidy.tree import ROOT, functions

GUARANTEES = ROOT / "docs" / "guarantees.md"
ROW = re.compile(r"^\| ([A-Z]\d+b?) \| ([^|]+) \| ([^|]+) \|$")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")

# What must have a row.
PROMISED = [f"A{number}" for number in range(1, 18)] + ["A11b"]
PROMISED += [f"B{number}" for number in range(1, 8)]
PROMISED += [f"C{number}" for number in range(1, 14)] + [f"D{number}" for number in range(1, 6)]
PROMISED += [f"E{number}" for number in range(1, 7)] + [f"F{number}" for number in range(1, 10)]
PROMISED += ["G1", "G2", "G3", "G4", "H1", "H2", "H3", "H4", "I1", "I2", "J1", "K3", "M2"]


def rows() -> list[tuple[str, str, str]]:
    lines = GUARANTEES.read_text().splitlines()
    return [match.groups() for line in lines if (match := ROW.match(line))]


def test_every_row_has_a_promise_and_a_test() -> None:
    table = [line for line in GUARANTEES.read_text().splitlines() if line.startswith("| ")]
    assert len(rows()) == len(table) - 2, "a row is: | id | promise | `path::name` ... |"
    assert [name for name, promise, tests in rows() if not NAMED.search(tests)] == []
    assert [name for name, promise, _ in rows() if not promise.strip().endswith(".")] == []


def test_every_requirement_of_the_ground_floor_has_a_row() -> None:
    assert [name for name in PROMISED if name not in {row[0] for row in rows()}] == []


def test_every_named_test_exists() -> None:
    missing = []
    for name, _, tests in rows():
        for path, function in NAMED.findall(tests):
            known = {each.name for each in functions(Path(path))} if (ROOT / path).exists() else ()
            if function not in known:
                missing.append(f"{name}: {path}::{function}")
    assert missing == []
