"""kill -9 of `manage.py standalone` in the middle of a provider call, then start it again."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import lives
from tests.support.client import Client
from tests.support.environment import child_environment
from tests.support.house import House
from tests.support.kernel_process import LIMITS, ROOT, START_SECONDS_MAX
from tests.support.owned import identity_of
from tests.support.person import Person
from tests.support.wait import wait_until

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")


class Standalone:
    """The command as an operator runs it, on a free port."""

    def __init__(self, database_url: str, directory: Path, **more: str):
        values = {"TMPDIR": str(directory), "BAILING_DEMO": "0", **LIMITS, **more}
        environment = child_environment(database_url=database_url, **values)
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", "standalone", "--port", "0"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._identity = identity_of(self._process.pid)
        self._lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        about = "standalone says where it listens"
        self.address = wait_until(self._said_address, START_SECONDS_MAX, about=about)

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._lines.extend(self._process.stdout)

    def _said_address(self) -> str | None:
        assert self._process.poll() is None, "".join(self._lines)
        found = re.search(r"Console\s+(http://127\.0\.0\.1:\d+)/", "".join(self._lines))
        return found and found.group(1)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def send(self, number: int) -> None:
        """Send a signal, when it still runs."""
        if self._process.poll() is None and identity_of(self._process.pid) == self._identity:
            os.kill(self._process.pid, number)

    def end(self, number: int) -> int:
        """Send a signal; the exit code."""
        self.send(number)
        return self._process.wait(30)

    def kill(self) -> None:
        """SIGKILL, and proof that this is what it died of."""
        assert self.end(signal.SIGKILL) == -signal.SIGKILL


@pytest.fixture
def standalones(house: House, tmp_path: Path) -> Iterator[list[Standalone]]:
    """Everything a case starts, ended at its end."""
    started: list[Standalone] = []
    yield started
    for each in started:
        each.end(signal.SIGKILL)


def test_kill_9_of_standalone_in_a_provider_call_leaves_an_unknown_that_a_person_resolves(
    house: House, standalones: list[Standalone], tmp_path: Path
) -> None:
    op = house.operation()
    house.provider_does("hang", op)
    first = Standalone(house.url, tmp_path)
    standalones.append(first)
    posted = Client(first.port, house.token, on_answer=house.saw).post_later(op)
    house.provider.wait_for_call(op, 30)
    house.kill(first)
    house.let_leases_end()
    assert posted.result().lost

    second = Standalone(house.url, tmp_path)
    standalones.append(second)
    house.wait_states(op, "unknown", "pending", "no_usage")
    client = Client(second.port, house.token, on_answer=house.saw)
    assert client.post(op).code == "outcome_unknown"
    request_id = house.request(op)["id"]
    with Person(second.address) as person:
        person.sign_in()
        assert "1 request with an unknown outcome" in person.page("/")
        person.send(
            f"/requests/{request_id}/",
            f"/requests/{request_id}/resolve/",
            outcome="executed",
            input_tokens=lives.USAGE["prompt_tokens"],
            output_tokens=lives.USAGE["completion_tokens"],
            note="found in the provider's log",
        )
        assert "with an unknown outcome" not in person.page("/")
    assert house.states(op) == ("failed", "settled", "")
    assert [row["amount_nano"] for row in house.ledger(op)] == [lives.CHARGE_NANO]
    assert house.provider.count(op) == 1
    assert second.end(signal.SIGTERM) == 0
    house.verify()
