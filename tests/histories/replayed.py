"""The case that `python -m tests.histories.replay` runs; not collected otherwise."""

import os

import pytest

from tests.histories.replay import MUTANT_VARIABLE, PLAN_VARIABLE
from tests.support.history_mutants import mutated
from tests.support.history_replay import from_text, what_breaks


def test_the_plan_keeps_every_promise(kernel_db: None, tables_to_empty: list[str]) -> None:
    plan = from_text(os.environ[PLAN_VARIABLE])
    with mutated(os.environ.get(MUTANT_VARIABLE, "")):
        found = what_breaks(plan, tables=tables_to_empty)
    if found:
        pytest.fail(found, pytrace=False)
