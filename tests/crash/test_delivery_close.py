"""SIGTERM while commits hang (G3, G4): out in time, with what is left named, nothing lost."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.crash.test_standalone import Standalone, standalones
from tests.support import lives
from tests.support.client import Client
from tests.support.environment import child_environment
from tests.support.house import RESULT, SETTLEMENT, WAIT_SECONDS, House
from tests.support.kernel_process import LIMITS, ROOT

__all__ = ["standalones"]

pytestmark = pytest.mark.mysql("BAILING_NOTIFICATION_TEST_MYSQL")

BUDGET_SECONDS = 3  # an idle process on a busy machine needs more than one to close
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


def test_sigterm_of_maintain_while_a_settlement_hangs_ends_in_time_and_charges_once(
    house: House,
) -> None:
    with house.office():
        lives.complete("op-1")
    rule = house.on_commit(containing=SETTLEMENT, action="hold_ok")
    environment = child_environment(
        database_url=house.proxy.url(house.url),
        **{**LIMITS, "BAILING_CLOSE_BUDGET_SECONDS": str(BUDGET_SECONDS)},
    )
    process = subprocess.Popen(
        [sys.executable, "manage.py", "maintain"],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert rule.wait_fired(WAIT_SECONDS).outcome == "committed"
        process.send_signal(signal.SIGTERM)
        # The OK never comes: without its own end the process would wait for it.
        _, complaint = process.communicate(timeout=WAIT_SECONDS / 2)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "'database': 1" in complaint
    house.kernel()
    house.wait_states("op-1", "complete", "settled")
    assert len(house.ledger("op-1")) == 1
    house.verify()
