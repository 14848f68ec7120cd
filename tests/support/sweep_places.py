"""The boundaries of a flow, from inside the process that runs it: list them, or die at one.

A boundary is before or after a transaction's commit, by verb and count, and each outside call:
`sent` = the witness has it, `answered` = its answer is in hand and nothing is saved. A stream is
`opened` at its head. `made answer`: an HTTP answer that its client does not hear.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connection

from kernel.delivery.channels import Channels
from kernel.jobs import tools
from kernel.usage import providers
from kernel.usage.gateway import Flight
from tests.support.stops import Stops

MARK = "sweep-mark"
MODEL, TOOL, MESSAGE, ANSWER = "model", "tool", "message", "answer"
BEFORE, AFTER = "before", "after"
SENT, ANSWERED, OPENED, MADE = "sent", "answered", "opened", "made"
# They come by the clock, not by the flow: a look that finds nothing, a lease that is renewed.
BY_THE_CLOCK = frozenset({"_claim", "renew_leases", "heartbeat", "_heartbeat"})


@dataclass(frozen=True, order=True)
class Boundary:
    """The nth time that a flow comes by here."""

    name: str
    when: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.when} {self.name} {self.nth}"

    @property
    def is_commit(self) -> bool:
        """Whether a COMMIT follows at once."""
        return self.when == BEFORE


class Places(Stops):
    """Notes every boundary this process passes; ends it, or marks its transaction, at one.

    `dies_at`: a real SIGKILL by its own hand, so that no other thread takes a further step.
    `marks`: the transaction that is about to commit here says so in a statement, for the proxy.
    """

    def __init__(
        self,
        *,
        dies_at: Boundary | None,
        marks: Boundary | None,
        tell: Callable[[tuple[Any, ...]], None],
    ):
        super().__init__([], tell=tell)
        self.passed: list[Boundary] = []
        self.marked_at: float | None = None  # monotonic
        self._dies_at, self._marks = dies_at, marks

    def at(self, name: str, when: str) -> None:
        """Count one passage; what is to happen here happens."""
        if name in BY_THE_CLOCK:
            return
        with self._lock:
            self._passed[name, when] += 1
            here = Boundary(name, when, self._passed[name, when])
            self.passed.append(here)
        if here == self._dies_at and when != SENT:  # of what is sent only the witness knows
            self._tell(("at", here))
            os.kill(os.getpid(), signal.SIGKILL)
        if here == self._marks:
            self._tell(("at", here))
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT '{MARK}'")
                cursor.fetchall()
            self.marked_at = time.monotonic()

    def around_everything(self) -> None:
        """Wrap the one commit function and every call to the outside."""
        self.around_commits()
        self._around(providers, "send", MODEL)
        self._around(tools, "call_tool", TOOL)
        self._around(Channels, "send", MESSAGE)
        stream = Flight.stream

        def opened(flight: Flight, **head: Any) -> Any:
            self.at(MODEL, OPENED)
            return stream(flight, **head)

        setattr(Flight, "stream", opened)  # noqa: B010  - a method of somebody else

    def _around(self, owner: Any, attribute: str, name: str) -> None:
        real = getattr(owner, attribute)

        async def called(*args: Any, **values: Any) -> Any:
            self.at(name, SENT)
            answer = await real(*args, **values)
            self.at(name, ANSWERED)
            return answer

        setattr(owner, attribute, called)
