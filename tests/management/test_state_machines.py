"""docs/state-machines.md says what kernel/states.py says."""

import pytest

from kernel.management.commands import state_machines
from kernel.states import MACHINES
from tests.management.running import done, run


def test_the_document_is_the_code() -> None:
    done("state_machines", "--check")


def test_a_document_that_is_out_of_date_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_machines, "render", lambda: "another text")
    answer = run("state_machines", "--check")
    assert answer.code == 1
    assert "out of date: run manage.py state_machines" in answer.error


def test_every_state_and_every_move_is_in_the_text() -> None:
    now = state_machines.render()
    for machine in MACHINES:
        for state in machine.states:
            assert f"| `{state.name}` | {state.means} |" in now
        for move in machine.moves:
            assert f"| `{move.source}` | `{move.target}` | {move.verb} |" in now
            assert f"    {move.source} --> {move.target}: {move.verb}\n" in now


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.column)
def test_a_state_is_final_exactly_when_nothing_moves_a_row_out_of_it(machine) -> None:
    sources = {move.source for move in machine.moves}
    names = {state.name for state in machine.states}
    assert {state.name for state in machine.states if state.left_by} == sources
    assert {move.target for move in machine.moves} | sources <= names
