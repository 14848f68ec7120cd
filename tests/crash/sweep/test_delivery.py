"""Messages, dead letters, replays and bulk: killed at every boundary, acknowledgements lost."""

import pytest

from tests.crash.sweep.cases import SECONDS_MAX, Scenes, sweep
from tests.support.sweep_flows_delivery import DELIVERY

pytestmark = [
    pytest.mark.mysql("BAILING_NOTIFICATION_TEST_MYSQL"),
    pytest.mark.timeout(SECONDS_MAX),
]


@pytest.mark.parametrize("flow", [flow.name for flow in DELIVERY])
def test_a_message_arrives_and_a_replay_is_admitted_once_wherever_its_process_ends(
    scenes: Scenes, flow: str
) -> None:
    sweep(scenes(flow))
