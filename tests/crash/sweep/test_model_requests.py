"""Model requests: killed at every boundary, and every acknowledgement of a commit lost."""

import pytest

from tests.crash.sweep.cases import SECONDS_MAX, Scenes, sweep
from tests.support.sweep_flows_usage import USAGE

pytestmark = [
    pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST"),
    pytest.mark.timeout(SECONDS_MAX),
]


@pytest.mark.parametrize("flow", [flow.name for flow in USAGE])
def test_a_model_request_is_sent_once_and_charged_once_wherever_its_process_ends(
    scenes: Scenes, flow: str
) -> None:
    sweep(scenes(flow))
