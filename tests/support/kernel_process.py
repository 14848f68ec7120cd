"""A kernel child seen from its test: start, wait for the place it stops at, kill, replace.

kernel = KernelProcess(url, stops=[("dispatch", "after")]).start()
...                                   # a client posts to kernel.port
kernel.wait_stopped("dispatch", "after")
kernel.kill()                         # a real SIGKILL
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support import kernel_child
from tests.support.environment import child_environment
from tests.support.owned import identity_of
from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 40.0
STOP_SECONDS_MAX = 20.0
# Short enough that no test waits long, and still inside the bounds of kernel/conf.py.
LEASE_SECONDS = 5
LIMITS = {
    "BAILING_DISPATCH_LEASE_SECONDS": str(LEASE_SECONDS),
    "BAILING_DISPATCH_RENEWAL_SECONDS": "1",
    "BAILING_RECOVERY_INTERVAL_SECONDS": "1",
    "BAILING_SETTLEMENT_INTERVAL_SECONDS": "1",
    "BAILING_TOKEN_CACHE_SECONDS": "0",
}

Place = tuple[str, str] | tuple[str, str, int]

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.support.kernel_child"])


class KernelProcess:
    """One kernel child on a database; `limits` are BAILING_* settings. `worker`: it runs jobs.

    `shares` is what it has in common with other children, e.g. a barrier.
    """

    main = staticmethod(kernel_child.main)

    def __init__(
        self,
        database_url: str,
        *,
        stops: Sequence[Place] = (),
        mutant: str = "",
        limits: dict[str, str] | None = None,
        worker: bool = False,
        shares: tuple[Any, ...] = (),
    ):
        self._plan = kernel_child.Plan(
            database_url=database_url,
            environment=child_environment(
                database_url=database_url, **{**LIMITS, **(limits or {})}
            ),
            stops=tuple((*stop, 1) if len(stop) == 2 else stop for stop in stops),
            mutant=mutant,
            worker=worker,
        )
        self._pipe, self._child_pipe = FORKS.Pipe()
        self._process = FORKS.Process(
            target=type(self).main, args=(self._plan, self._child_pipe, *shares), daemon=True
        )
        self._told: list[tuple[Any, ...]] = []
        self._identity: str | None = None

    # --- life ---------------------------------------------------------------------------------

    def launch(self) -> "KernelProcess":
        """Start; wait_ready() waits until it answers HTTP."""
        self._process.start()
        self._child_pipe.close()
        self._identity = identity_of(self.pid)
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def wait_ready(self) -> "KernelProcess":
        """Until it answers HTTP. AssertionError when it ended instead."""
        wait_until(
            lambda: self._ports() or not self.is_running(),
            START_SECONDS_MAX,
            about="the kernel child is ready",
        )
        assert self._ports(), "the kernel child did not start; see its output"
        return self

    def start(self) -> "KernelProcess":
        """launch() and wait_ready()."""
        return self.launch().wait_ready()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, "the kernel child was not started"
        return self._process.pid

    @property
    def port(self) -> int:
        """Where its HTTP door is."""
        return self._ports()[0]

    def is_running(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        """SIGKILL, and proof that this is what it died of."""
        assert self.is_running(), "there is nothing left to kill"
        self._signal(signal.SIGKILL)
        self._process.join(STOP_SECONDS_MAX)
        assert self._process.exitcode == -signal.SIGKILL, self._process.exitcode

    def pause(self) -> None:
        """SIGSTOP: a process that hangs, with its connections open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def terminate(self) -> int:
        """SIGTERM, and its exit code when it has closed in an orderly way."""
        self._signal(signal.SIGTERM)
        self._process.join(STOP_SECONDS_MAX)
        assert self._process.exitcode is not None, "SIGTERM did not end the kernel child"
        return self._process.exitcode

    def stop(self) -> None:
        """Make sure that it is gone. Safe to call twice."""
        if self._process.pid is not None and self.is_running():
            self._signal(signal.SIGKILL)
            self._process.join()
        self._pipe.close()

    def _signal(self, number: int) -> None:
        assert self._identity == identity_of(self.pid), "this process is not the one we started"
        os.kill(self.pid, number)

    def __enter__(self) -> "KernelProcess":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- what it tells and is told ------------------------------------------------------------

    def wait_stopped(self, name: str, when: str) -> None:
        """Until it stands at this place."""
        wait_until(
            lambda: self.has_stopped(name, when),
            STOP_SECONDS_MAX,
            about=f"the kernel stands {when} {name}",
        )

    def has_stopped(self, name: str, when: str) -> bool:
        """Whether it came to this place."""
        return ("stopped", name, when) in self._told

    def release(self, name: str, when: str) -> None:
        """Let it go on from there."""
        self._pipe.send((name, when))

    def _ports(self) -> list[int]:
        return [told[1] for told in list(self._told) if told[0] == "ready"]

    def heard(self, said: tuple[Any, ...]) -> None:
        """Remember what the child said."""
        self._told.append(said)

    def ended(self) -> None:
        """The child says nothing any more."""

    def _listen(self) -> None:
        try:
            while True:
                self.heard(self._pipe.recv())
        except (EOFError, OSError):
            self.ended()
