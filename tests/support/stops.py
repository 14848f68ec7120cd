"""Places where a kernel child stands still until it is killed or told to go on.

The places are around the one commit function, so each verb has two, with its own name:
`before` = all written, nothing committed; `after` = committed, nobody told yet. What several acts
share is told apart: a `claim` that took a job, a `begin_call` that permits one, a `finish_call`;
`claim_message`, its `outcome`, the outcome that is a `death`; a `claim_operation`, its `items`.
And `answer`, before the first byte of an HTTP answer leaves. Nothing of this is in kernel/.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from kernel import transactions
from kernel.delivery.claims import Claimed
from kernel.delivery.sending import Recorded
from kernel.jobs import journal
from kernel.models import Operation
from kernel.operations.work import Counts
from kernel.state import JobRecord

Scope = MutableMapping[str, Any]


class Stops:
    """The places this process stops at: `[name, "before" | "after", nth]` each."""

    def __init__(
        self, places: Iterable[tuple[str, str, int]], *, tell: Callable[[tuple[Any, ...]], None]
    ):
        self._places = {(name, when): nth for name, when, nth in places}
        self._passed: Counter[tuple[str, str]] = Counter()
        self._gates = {place: threading.Event() for place in self._places}
        self._lock = threading.Lock()
        self._tell = tell

    def release(self, name: str, when: str) -> None:
        """Let what stands at this place go on."""
        self._gates[name, when].set()

    def is_here(self, name: str, when: str) -> bool:
        """Count one passage; whether it is the one to stop at. Announces it."""
        place = (name, when)
        if place not in self._places:
            return False
        with self._lock:
            self._passed[place] += 1
            if self._passed[place] != self._places[place]:
                return False
            self._tell(("stopped", name, when))
        return True

    def at(self, name: str, when: str) -> None:
        """Stand still here, when it is the place, in the thread that came."""
        if self.is_here(name, when):
            self._gates[name, when].wait()

    async def at_async(self, name: str, when: str) -> None:
        """The same in the event loop, which goes on with everything else."""
        if self.is_here(name, when):
            await asyncio.to_thread(self._gates[name, when].wait)

    def around_commits(self) -> None:
        """Wrap the one commit function: every transaction of the product passes it by name."""
        real, here = transactions.commit_unit, threading.local()
        _note_answers(here)

        def commit_unit(name: str, attempt: transactions.Attempt, block: Callable[[], Any]) -> Any:
            place = name

            def written() -> Any:
                nonlocal place
                here.saves_answer = False
                result = block()
                place = _place(name, result, saves_answer=here.saves_answer)
                self.at(place, "before")
                return result

            result = real(name, attempt, written)
            self.at(place, "after")
            return result

        transactions.commit_unit = commit_unit

    def before_answers(self, application: Any) -> Any:
        """Wrap an ASGI application: its answers to POST stop before their first byte."""

        async def wrapped(
            scope: Scope, receive: Any, send: Callable[[Any], Awaitable[None]]
        ) -> None:
            async def send_or_stop(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start" and scope.get("method") == "POST":
                    await self.at_async("answer", "before")
                await send(message)

            await application(scope, receive, send_or_stop)

        return wrapped


def _note_answers(here: threading.local) -> None:
    """Notice, in its transaction, that the answer of a tool call is saved."""
    real = journal.finish_in_tx

    def finish_in_tx(**values: Any) -> None:
        here.saves_answer = True
        real(**values)

    journal.finish_in_tx = finish_in_tx


def _place(name: str, result: Any, *, saves_answer: bool) -> str:
    """The name of a place: the verb, or what the verb was used for."""
    first = result[0] if isinstance(result, list) and result else None
    if name == "_claim" and first is not None:
        return {JobRecord: "claim", Claimed: "claim_message"}.get(type(first), name)
    if name == "_claim":
        return "claim_operation" if isinstance(result, Operation) else name
    if isinstance(first, Recorded):
        return "death" if any(getattr(one, "dead_letter_id", "") for one in result) else "outcome"
    if isinstance(result, Counts):
        return "items"
    if name == "guard" and isinstance(result, journal.Permit):
        return "begin_call"
    return "finish_call" if name == "guard" and saves_answer else name
