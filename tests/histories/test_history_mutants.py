"""Random histories can fail: seeded mistakes are found, and a failed plan is played again."""

import subprocess
import sys

import pytest

from tests.histories.machine import EVERYDAY_STEPS, Broken, run_histories
from tests.histories.test_random_histories import CHUNK, EVERYDAY_HISTORIES, FIXED_SEED
from tests.support import history_replay
from tests.support.faults import Violation
from tests.support.history_mutants import mutated
from tests.support.history_replay import as_text, from_text, told, what_breaks
from tests.support.history_world import Plan

# The very histories of `make test`: what takes more of them to be found is not found there.
EVERYDAY_CHUNKS = EVERYDAY_HISTORIES // CHUNK
MUTANTS = ("provider_before_dispatch", "provider_call_is_retried", "missing_metering_is_zero")
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_random_history_finds_a_seeded_mistake_and_its_plan_finds_it_again(
    kernel_db: None, tables_to_empty: list[str], mutant: str
) -> None:
    with mutated(mutant):
        with pytest.raises(Broken) as found:
            for chunk in range(EVERYDAY_CHUNKS):
                run_histories(
                    tables=tables_to_empty,
                    number=FIXED_SEED + chunk,
                    count=CHUNK,
                    steps=EVERYDAY_STEPS,
                )
        plan = from_text(as_text(found.value.plan))
        assert what_breaks(plan, tables=tables_to_empty) == found.value.text
    assert what_breaks(plan, tables=tables_to_empty) == ""


def test_a_plan_is_shortened_only_to_one_that_breaks_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(plan: Plan, *, tables: list[str]) -> Exception | None:
        names = [name for name, _ in plan]
        return Violation(f"broken after {names}") if "kill" in names else KeyError("nothing there")

    monkeypatch.setattr(history_replay, "breaks", breaks)
    plan: Plan = [("submit", {}), ("kill", {}), ("tick", {})]
    found = history_replay.shortened(plan, Violation("broken"), tables=[], seconds=60)
    assert found[0] == [("kill", {})]
    assert history_replay.sentence(found[1]) == "broken after ['kill']"


def test_one_command_plays_a_plan_again() -> None:
    plan = [("submit", {"at": 0, "meets": "", "stream": False, "provider": "ok"})]
    text = told(plan, text="broken", seed=1)
    assert as_text(plan) in text.splitlines()[-1]
    command = [sys.executable, "-m", "tests.histories.replay", as_text(plan)]
    mutant = ["--mutant", "provider_before_dispatch"]
    ended = subprocess.run([*command, *mutant], capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stdout
    assert "the provider was called for op-0: admitted" in ended.stdout
