"""Faults at the one commit function: acknowledgements lost, commits lost, a database that is away.

with at_commit("dispatch", LANDED) as fault: ...      # the real commit, then silence
assert fault.fired == 1
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from django.db import OperationalError

from kernel import transactions
from kernel.errors import CommitOutcomeUnknown

LANDED = "landed"  # committed, the acknowledgement is lost
VANISHED = "vanished"  # never committed, the caller cannot tell
AWAY = "away"  # the connection is lost before the block


@dataclass
class Fault:
    """How often the fault fired; `times` is how often it will."""

    times: int
    fired: int = 0

    def fires(self) -> bool:
        if self.fired >= self.times:
            return False
        self.fired += 1
        return True


@contextlib.contextmanager
def at_commit(verb: str, what: str, *, times: int = 1) -> Iterator[Fault]:
    """The next `times` transactions of `verb` ('*' = any) meet this fault."""
    real, fault = transactions.commit_unit, Fault(times)

    def commit_unit(name: str, attempt: Any, block: Callable[[], Any]) -> Any:
        if verb not in ("*", name) or not fault.fires():
            return real(name, attempt, block)
        if what == AWAY:
            raise OperationalError(2006, "Server has gone away")
        if what == LANDED:
            real(name, attempt, block)
        raise CommitOutcomeUnknown(f"nobody acknowledged the commit of {name}")

    with mock.patch.object(transactions, "commit_unit", commit_unit):
        yield fault
