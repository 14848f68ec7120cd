"""Every boundary of every flow of a model request x SIGKILL, on both engines."""

from collections.abc import Callable
from functools import partial

import pytest

from tests.support.sizes import sized
from tests.support.sweep import Scene, all_of, spread
from tests.support.sweep_flows_usage import USAGE

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")
KILLS = sized(3, 1000)


@pytest.mark.parametrize("flow", [flow.name for flow in USAGE])
def test_a_process_killed_at_any_boundary_is_replaced_and_nothing_is_lost_or_done_twice(
    scene_of: Callable[[str], Scene], flow: str
) -> None:
    scene = scene_of(flow)
    found = scene.boundaries()
    all_of([partial(scene.killed_at, boundary) for boundary in spread(found, KILLS)])
