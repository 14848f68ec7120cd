"""Jobs, decisions and tool calls: killed at every boundary, every acknowledgement lost."""

import pytest

from tests.crash.sweep.cases import SECONDS_MAX, Scenes, sweep
from tests.support.sweep_flows_jobs import JOBS

pytestmark = [
    pytest.mark.mysql("BAILING_APPROVAL_CONTINUATION_TEST_MYSQL"),
    pytest.mark.timeout(SECONDS_MAX),
]


@pytest.mark.parametrize("flow", [flow.name for flow in JOBS])
def test_a_job_is_decided_once_and_its_tool_called_once_wherever_its_process_ends(
    scenes: Scenes, flow: str
) -> None:
    sweep(scenes(flow))
