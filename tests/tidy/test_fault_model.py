"""docs/fault-model.md: the tests it names exist, and so do the mutants, all of them."""

import re
from pathlib import Path

from tests.tidy.test_guarantees import NAMED
from tests.tidy.tree import ROOT, functions

TEXT = (ROOT / "docs" / "fault-model.md").read_text()
PROPERTIES = [
    "Prefix continuation",
    "Effect exactly-once",
    "Fork determinism",
    "Checkpoint validity",
    "Consume-once",
    "Recovery determinism",
]
# Mutants are the functions with this decorator, in these files.
SEEDED = ["mutants.py", "job_mutants.py", "delivery_mutants.py"]
CASES = ["test_mutants.py", "test_approvals_mutants.py", "test_delivery_mutants.py"]


def rows_below(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    part = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def seeded() -> set[str]:
    """The names of all mutants."""
    return {
        each.name
        for name in SEEDED
        for each in functions(Path("tests/support") / name)
        if any(getattr(one, "id", "") == "mutant" for one in each.decorator_list)
    }


def test_each_of_the_six_properties_has_a_test_that_exists() -> None:
    rows = rows_below("What resuming means")
    assert [row[0] for row in rows] == PROPERTIES
    missing = []
    for name, _, tests, limit in rows:
        named = NAMED.findall(tests)
        assert named and limit, name
        for path, function in named:
            known = {each.name for each in functions(Path(path))} if (ROOT / path).exists() else ()
            if function not in known:
                missing.append(f"{name}: {path}::{function}")
    assert missing == []


def test_every_mutant_is_in_the_table_and_every_named_one_exists() -> None:
    rows = rows_below("That the proof can fail")
    named = [name for _, cell in rows for name in re.findall(r"`(\w+)`", cell)]
    assert len(named) == len(set(named))
    assert set(named) == seeded()
    assert len(named) >= 15


def test_every_mutant_has_a_case_that_is_to_kill_it() -> None:
    cases = "".join((ROOT / "tests" / "crash" / name).read_text() for name in CASES)
    assert [name for name in sorted(seeded()) if f'"{name}"' not in cases] == []


def test_the_files_and_folders_that_the_document_names_exist() -> None:
    named = set(re.findall(r"`(tests/[\w/]+(?:\.py)?)`", TEXT))
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
