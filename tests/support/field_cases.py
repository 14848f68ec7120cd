"""Maps of field cases: by number, the tests that show the right outcome here, or why none can."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
_TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
Cases = Mapping[int, str | Iterable[str]]


@cache
def written() -> frozenset[str]:
    """The names of all tests."""
    files = TESTS.rglob("test_*.py")
    return frozenset(name for file in files for name in _TEST.findall(file.read_text("utf-8")))


def not_written(cases: Cases) -> list[str]:
    """The tests that a map names, without their `test_`, and that nobody wrote."""
    named = {
        f"test_{name}"
        for names in cases.values()
        for name in ((names,) if isinstance(names, str) else names)
    }
    return sorted(named - written())
