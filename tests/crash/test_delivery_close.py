"""SIGTERM of standalone while commits hang (G3, G4): out in time, with what is left named."""

import signal
import time
from pathlib import Path

import pytest

from tests.crash.test_standalone import Standalone, standalones
from tests.support.client import Client
from tests.support.house import RESULT, WAIT_SECONDS, House

__all__ = ["standalones"]

pytestmark = pytest.mark.mysql("BAILING_NOTIFICATION_TEST_MYSQL")

BUDGET_SECONDS = 1
OVER_SECONDS_MAX = 0.5
EXIT_LEFT_WORK = 3


def _closing(house: House, tmp_path: Path, standalones: list[Standalone]) -> Standalone:
    made = Standalone(
        house.proxy.url(house.url), tmp_path, BAILING_CLOSE_BUDGET_SECONDS=str(BUDGET_SECONDS)
    )
    standalones.append(made)
    return made


def _seconds_to_end(process: Standalone, signals: int) -> tuple[int, float]:
    began = time.monotonic()
    for _ in range(signals - 1):
        process.send(signal.SIGTERM)
    return process.end(signal.SIGTERM), time.monotonic() - began


@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_while_commits_hang_ends_in_time_and_loses_nothing(
    house: House, standalones: list[Standalone], tmp_path: Path, signals: int
) -> None:
    idle = _closing(house, tmp_path, standalones)
    code, idle_seconds = _seconds_to_end(idle, 1)
    assert code == 0

    process = _closing(house, tmp_path, standalones)
    rule = house.on_commit(containing=RESULT, action="hold_ok")
    op = house.operation()
    posted = Client(process.port, house.token, on_answer=house.saw).post_later(op)
    assert rule.wait_fired(WAIT_SECONDS).outcome == "committed"
    code, seconds = _seconds_to_end(process, signals)
    # What an idle process takes to end on this machine is not the close's.
    assert seconds <= BUDGET_SECONDS + OVER_SECONDS_MAX + idle_seconds
    assert code == EXIT_LEFT_WORK
    posted.result()
    house.kernel()
    house.wait_states(op, "complete", "settled")
    assert house.provider.count(op) == 1
    house.verify()
