"""Web servers, Celery workers and beats as an operator runs them, on a case's database and broker.

fleet.web(), fleet.worker(), fleet.beat()      # each a process of its own; .kill(), .terminate()
fleet.wait_ready()
"""

import http.client
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.bench.product import free_port
from tests.support import desk, post_room
from tests.support.environment import child_environment
from tests.support.kernel_process import LIMITS, ROOT
from tests.support.owned import identity_of
from tests.support.wait import wait_until

START_SECONDS_MAX = 180.0  # a busy machine starts seven processes slowly
STOP_SECONDS_MAX = 60.0
PYTHON = [sys.executable, "-m"]
CELERY = [*PYTHON, "celery", "-A", "console.celery"]
ALONE = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
WEB = [*PYTHON, "uvicorn", "console.asgi:application", "--loop", "uvloop", "--no-access-log"]
# Short enough that no test waits long, and still inside the bounds of kernel/conf.py.
QUICK = {
    **LIMITS,
    **desk.LIMITS,
    **post_room.LIMITS,
    "BAILING_JOB_POLL_SECONDS": "1",
    "BAILING_NOTIFICATION_POLL_SECONDS": "1",
    "BAILING_NOTIFICATION_LEASE_SECONDS": "10",
    "BAILING_NOTIFICATION_DEADLINE_SECONDS": "5",
    "BAILING_CLOSE_BUDGET_SECONDS": "15",
    "BAILING_LOG_LEVEL": "INFO",
}


class Member:
    """One process of the fleet. Linux ends it when the test process dies."""

    def __init__(self, kind: str, command: Sequence[str], environment: dict[str, str], log: Path):
        self.kind, self._log, self.port = kind, log, 0
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*prefix, *command],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._identity = identity_of(self._process.pid)

    @property
    def words(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace")

    def is_running(self) -> bool:
        return self._process.poll() is None

    def cpu_seconds(self) -> float:
        """Processor time it has used, all threads."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def is_ready(self) -> bool:
        """A web server answers, a worker takes messages, a beat has begun; none has ended."""
        assert self.is_running(), f"{self.kind} ended:\n{self.words[-3000:]}"
        if self.kind == "web":
            return self._answers()
        return ("ready." if self.kind == "worker" else "is starting") in self.words

    def kill(self) -> None:
        """SIGKILL, and proof that this is what it died of."""
        self._send(signal.SIGKILL)
        assert self._process.wait(STOP_SECONDS_MAX) == -signal.SIGKILL

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self._send(signal.SIGTERM)
        return self._process.wait(STOP_SECONDS_MAX)

    def end(self) -> None:
        """Make sure that it is gone. Safe to call twice."""
        if self.is_running():
            self._send(signal.SIGKILL)
        self._process.wait()

    def _send(self, number: int) -> None:
        assert identity_of(self._process.pid) == self._identity, f"{self.kind} is gone already"
        os.kill(self._process.pid, number)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


class Fleet:
    """Every process of a case; `close()` leaves none behind."""

    def __init__(
        self,
        *,
        database_url: str,
        broker_url: str,
        directory: Path,
        limits: Mapping[str, str] = QUICK,
    ):
        self._directory, self._members = directory, list[Member]()
        self.environment = child_environment(
            database_url=database_url,
            **{
                **limits,
                "BAILING_ENGINE": "celery",
                "BAILING_BROKER_URL": broker_url,
                "BAILING_VAR_DIR": str(directory),
            },
        )

    def web(self) -> Member:
        """A web server on a free port; it runs no job."""
        port = free_port()
        member = self._start("web", [*WEB, "--host", "127.0.0.1", "--port", str(port)])
        member.port = port
        return member

    def worker(self, *options: str) -> Member:
        """A Celery worker, with options of Celery."""
        return self._start("worker", [*CELERY, "worker", *ALONE, *options])

    def beat(self) -> Member:
        """A Celery beat. More than one changes nothing."""
        return self._start("beat", [*CELERY, "beat"])

    def wait_ready(self) -> None:
        """Until everything that runs is ready."""
        for member in [each for each in self._members if each.is_running()]:
            wait_until(
                member.is_ready, START_SECONDS_MAX, about=f"{member.kind} is ready", look_every=0.1
            )

    def words(self, kind: str) -> str:
        """What all processes of a kind have written."""
        return "".join(member.words for member in self._members if member.kind == kind)

    def close(self) -> None:
        for member in self._members:
            member.end()

    def _start(self, kind: str, command: list[str]) -> Member:
        log = self._directory / f"{kind}-{secrets.token_hex(4)}.log"
        member = Member(kind, command, self.environment, log)
        self._members.append(member)
        return member
