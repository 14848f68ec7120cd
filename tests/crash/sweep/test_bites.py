"""The sweep bites: a seeded mistake breaks a promise at a boundary that the product passes."""

import pytest

from tests.crash.sweep.cases import Scenes
from tests.support.faults import FaultRecord
from tests.support.sweep_ground import SQLITE
from tests.support.sweep_places import AFTER, BEFORE, Boundary

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")


@pytest.mark.parametrize("engine", [SQLITE])
@pytest.mark.parametrize(
    ("mutant", "flow", "boundary", "complaint"),
    [
        ("provider_before_dispatch", "plain", Boundary("dispatch", BEFORE), "2 provider calls"),
        ("unknown_is_dispatched_again", "plain", Boundary("save_results", BEFORE), "2 provider"),
        (
            "replay_under_a_fresh_id",
            "dead letter replayed",
            Boundary("_admit_natives", AFTER),
            "was admitted 2 times",
        ),
    ],
)
def test_a_seeded_mistake_breaks_a_promise(
    scenes: Scenes,
    fault_record: FaultRecord,
    *,
    mutant: str,
    flow: str,
    boundary: Boundary,
    complaint: str,
) -> None:
    scene = scenes(flow)
    scene.mutant = mutant
    fault_record.seeded.append(mutant)
    broken = scene.killed_at(boundary)
    assert any(complaint in one for one in broken), broken
    fault_record.killed.append(mutant)
