"""What the proxy shall do with which COMMIT, and the record that it did."""

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support.wait import DEADLINE_SECONDS, wait_until

ACTIONS = (
    "withhold_ok",
    "drop_request",
    "hold_ok",
    "hold_request",
    "late_commit",
    "half_open",
    "half_open_unsent",
)


@dataclass
class Firing:
    """One time a rule did its work. `at` is Unix seconds; `thread_id` the server's connection id.

    `statements` are those of the transaction that still counted, `text` the one the rule met.
    `outcome`: committed (the server's OK was read), refused (the server's error was read), dropped
    (never sent), None (not known yet, or the server's connection ended first).
    """

    thread_id: int
    text: str
    statements: tuple[str, ...]
    at: float = field(default_factory=time.time)
    outcome: str | None = None


@dataclass(frozen=True)
class CommitSeen:
    """One COMMIT the server was asked for; outcome: committed, refused or lost (no answer read)."""

    thread_id: int
    statements: tuple[str, ...]
    at: float
    outcome: str


class Rule:
    """Made by MysqlProxy.on_commit() or on_statement(); steered and read by the test's thread."""

    def __init__(
        self,
        *,
        commits_only: bool,
        patterns: Sequence[str],
        action: str,
        nth: int,
        times: int,
        seconds: float | None,
        soon: Callable[[Callable[[], None]], None],
    ):
        if action not in ACTIONS:
            raise ValueError(f"no action {action!r}; there are: {', '.join(ACTIONS)}")
        self.action, self.seconds = action, seconds
        self.firings: list[Firing] = []
        self.matched_count = 0
        self._patterns = [re.compile(p, re.IGNORECASE | re.DOTALL) for p in patterns]
        self._commits_only, self._first, self._times = commits_only, nth, times
        self._armed = True
        self._soon = soon
        self._released, self._dropped = asyncio.Event(), threading.Event()

    # --- for the test -------------------------------------------------------------------------

    @property
    def fired_count(self) -> int:
        return len(self.firings)

    def wait_fired(self, deadline: float = DEADLINE_SECONDS, *, count: int = 1) -> Firing:
        """Wait until the fault has happened `count` times; the last of them. Raises NotInTime.

        withhold_ok, hold_ok: the server's OK has been read. drop_request, late_commit: the client's
        connection is closed. hold_request, half_open_unsent: the request is in the proxy's hands.
        """
        about = f"{self} fired {count} time(s)"
        wait_until(lambda: self.fired_count >= count, deadline, about=about)
        return self.firings[count - 1]

    def wait_outcome(self, deadline: float = DEADLINE_SECONDS, *, count: int = 1) -> str:
        """Wait until the server's answer to the held or late COMMIT is known: its outcome."""
        firing = self.wait_fired(deadline, count=count)
        about = f"the server's answer to {self} is known"
        return wait_until(lambda: firing.outcome, deadline, about=about)

    def release(self) -> None:
        """Let what is held, or late, go on now; what fires afterwards is not held."""
        self._soon(self._released.set)

    def drop(self) -> None:
        """Close the connections of what is held instead: an unsent COMMIT is rolled back."""
        self._dropped.set()
        self.release()

    def disarm(self) -> None:
        """Match nothing from now on. What is held stays held."""
        self._armed = False

    def __str__(self) -> str:
        what = "COMMIT" if self._commits_only else "statement"
        return f"{self.action} on {what} {[p.pattern for p in self._patterns]}"

    # --- for the proxy ------------------------------------------------------------------------

    def takes(self, *, text: str, commit: bool, statements: Sequence[str]) -> bool:
        """Whether this one is meant: counts the match, and compares it with nth and times."""
        if not self._armed or (self._commits_only and not commit):
            return False
        among = statements if self._commits_only else [text]
        if not all(any(p.search(one) for one in among) for p in self._patterns):
            return False
        self.matched_count += 1
        return self._first <= self.matched_count < self._first + self._times

    def refused(self) -> None:
        """The server answered with an error, so there was no OK to withhold: matches again."""
        self._times += 1

    async def hold(self) -> bool:
        """Wait for `seconds`, or for release(); whether to go on (False: drop)."""
        if not self._released.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._released.wait(), self.seconds)
        return not self._dropped.is_set()
