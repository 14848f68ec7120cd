"""SIGTERM of a web server that is not ours while a commit hangs (G4): the budget bounds it all."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.bench.product import free_port
from tests.support.client import Client
from tests.support.environment import child_environment
from tests.support.house import RESULT, WAIT_SECONDS, House
from tests.support.kernel_process import LIMITS, ROOT
from tests.support.wait import wait_until

pytestmark = pytest.mark.mysql("BAILING_NOTIFICATION_TEST_MYSQL")

BUDGET_SECONDS, OVER_SECONDS_MAX = 1, 0.5
EXIT_LEFT_WORK = 3


@contextmanager
def uvicorn(house: House) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """`python -m uvicorn console.asgi:application`, its connections through the proxy; its port."""
    port = free_port()
    values = {**LIMITS, "BAILING_CLOSE_BUDGET_SECONDS": str(BUDGET_SECONDS)}
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "console.asgi:application", "--port", str(port)],
        cwd=ROOT,
        env=child_environment(database_url=house.proxy.url(house.url), **values),
    )
    try:
        wait_until(lambda: _is_ready(process, port), WAIT_SECONDS, about="uvicorn is ready")
        yield process, port
    finally:
        process.kill()
        process.wait()


def _is_ready(process: "subprocess.Popen[bytes]", port: int) -> bool:
    assert process.poll() is None
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _seconds_to_end(process: "subprocess.Popen[bytes]") -> float:
    began = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    process.wait(WAIT_SECONDS)
    return time.monotonic() - began


def test_a_web_server_whose_commit_hangs_ends_within_the_budget_and_loses_nothing(
    house: House,
) -> None:
    with uvicorn(house) as (idle, _):
        idle_seconds = _seconds_to_end(idle)
        assert idle.returncode != EXIT_LEFT_WORK
    with uvicorn(house) as (process, port):
        rule = house.on_commit(containing=RESULT, action="hold_ok")
        op = house.operation()
        posted = Client(port, house.token, on_answer=house.saw).post_later(op)
        assert rule.wait_fired(WAIT_SECONDS).outcome == "committed"
        seconds = _seconds_to_end(process)
        assert process.returncode == EXIT_LEFT_WORK
    # What an idle process takes to end on this machine is not the close's.
    assert seconds <= BUDGET_SECONDS + OVER_SECONDS_MAX + idle_seconds
    posted.result()
    house.kernel()
    house.wait_states(op, "complete", "settled")
    assert house.provider.count(op) == 1
    house.verify()
