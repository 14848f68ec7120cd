"""A process of the sweep seen from its test: it ends by itself or by a signal, and tells."""

import multiprocessing
import os
import signal
import time
from typing import Any

from tests.support import kernel_process, sweep_child
from tests.support.client import Answer
from tests.support.owned import identity_of
from tests.support.sweep_child import SweepPlan
from tests.support.sweep_places import Boundary
from tests.support.wait import NotInTime

END_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.05

_forks = multiprocessing.get_context("forkserver")
# Before the first process is forked: the server imports once what every one of them needs.
_forks.set_forkserver_preload([kernel_process.kernel_child.__name__, "tests.support.sweep_warm"])


class SweepProcess:
    """One such process."""

    def __init__(self, plan: SweepPlan):
        self.plan = plan
        self.answers: list[tuple[str, Answer]] = []
        self.passed: tuple[Boundary, ...] = ()
        self.facts: dict[str, Any] = {}
        self.stood_at: Boundary | None = None
        self.error = ""
        self._pipe, child_pipe = _forks.Pipe()
        self._process = _forks.Process(
            target=sweep_child.main, args=(plan, child_pipe), daemon=True
        )
        self._process.start()
        child_pipe.close()
        assert self._process.pid is not None
        self._pid = self._process.pid
        self._identity = identity_of(self._pid)

    def listen(self, seconds: float = LOOK_SECONDS) -> bool:
        """Hear what it says within that time; whether it can still say something."""
        try:
            while self._pipe.poll(seconds):
                self._hear(self._pipe.recv())
                seconds = 0.0
        except (EOFError, OSError):
            return False
        return True

    def wait_ended(self) -> "SweepProcess":
        """Until it has ended; AssertionError when something broke in it that was not to."""
        end = time.monotonic() + END_SECONDS_MAX
        while self.listen():
            if time.monotonic() > end:
                self.kill()
                raise NotInTime(f"{self.plan.part} of {self.plan.flow} did not end")
        self._process.join(END_SECONDS_MAX)
        self._pipe.close()
        assert not self.error, f"{self.plan.part} of {self.plan.flow}:\n{self.error}"
        return self

    def kill(self) -> None:
        """SIGKILL, if it is still ours to kill."""
        if self._process.is_alive() and identity_of(self._pid) == self._identity:
            os.kill(self._pid, signal.SIGKILL)
        self._process.join(END_SECONDS_MAX)
        while self.listen(0.0):
            pass
        self._pipe.close()

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL is what it died of."""
        return self._process.exitcode == -signal.SIGKILL

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def _hear(self, said: tuple[Any, ...]) -> None:
        if said[0] == "answer":
            self.answers.append((said[1], said[2]))
        elif said[0] == "at":
            self.stood_at = said[1]
        elif said[0] == "ended":
            self.passed, self.facts = said[1], said[2]
        else:
            self.error = said[1]
