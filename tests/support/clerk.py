"""A process that runs verbs of the product for a test, to be killed where it stands (K3).

clerk = Clerk(url, stops=[("_admit_natives", "after")]).start()
told = clerk.ask("replay", dead_letter_id=one)       # a future
clerk.wait_stopped("_admit_natives", "after")
clerk.kill()                                         # told.result() is LOST

Forked like a kernel child, with the same places to stop at; it has no door and no passes.
"""

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from django.db import DatabaseError

from kernel import outbox
from kernel.audit import Actor
from kernel.delivery.replay import replay as replay_letter
from kernel.errors import KernelError
from kernel.state import DatabaseStore
from kernel.transactions import transaction
from tests.support.kernel_child import Plan, become, mutate
from tests.support.kernel_process import KernelProcess
from tests.support.stops import Stops

LOST = ("lost", "")
Told = tuple[str, str]  # what it came to, and the notification or the error's code


# --- in the child ---------------------------------------------------------------------------------


@transaction
def publish(*, account_id: str, destination_id: str, event: str, data: dict[str, Any]) -> Told:
    """One message to one destination."""
    (name,) = outbox.publish_in_tx(
        account_id=account_id, event=event, data=data, destination_id=destination_id
    )
    return "published", name


def replay(*, dead_letter_id: str, by: str = "olga") -> Told:
    """Replay one dead letter."""
    told = replay_letter(
        dead_letter_id=dead_letter_id,
        actor=Actor("user", by),
        store=DatabaseStore(),
        reason="the receiver is back",
    )
    return told.state, told.notification_id


VERBS: dict[str, Callable[..., Told]] = {"publish": publish, "replay": replay}


def main(plan: Plan, pipe: Connection) -> None:
    """The life of a clerk. Ends by a signal, or when the test's end of the pipe is closed."""
    os.setsid()
    become(plan)
    mutate(plan)
    stops = Stops(plan.stops, tell=pipe.send)
    stops.around_commits()
    orders: queue.SimpleQueue[tuple[int, str, dict[str, Any]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=[stops, pipe, orders], daemon=True).start()
    pipe.send(("ready", 0))
    while True:
        number, verb, values = orders.get()
        try:
            told = VERBS[verb](**values)
        except KernelError as error:
            told = ("refused", error.error_code)
        except DatabaseError as error:
            told = ("failed", type(error).__name__)
        pipe.send(("told", number, told))


def _listen(stops: Stops, pipe: Connection, orders: "queue.SimpleQueue[Any]") -> None:
    try:
        while True:
            said = pipe.recv()
            if len(said) == 2:
                stops.release(*said)
            else:
                orders.put(said)
    except (EOFError, OSError):
        os._exit(0)


# --- in the test ----------------------------------------------------------------------------------


class Clerk(KernelProcess):
    """Such a process, seen from its test."""

    main = staticmethod(main)

    def __init__(self, database_url: str, **how: Any):
        super().__init__(database_url, **how)
        self._numbers = count(1)
        self._asked: dict[int, Future[Told]] = {}

    def ask(self, verb: str, **values: Any) -> "Future[Told]":
        """Begin a verb. The future is LOST when the process dies first."""
        number = next(self._numbers)
        asked = self._asked[number] = Future()
        self._pipe.send((number, verb, values))
        return asked  # which may be answered, and forgotten, already

    def heard(self, said: tuple[Any, ...]) -> None:
        super().heard(said)
        if said[0] == "told":
            self._asked.pop(said[1]).set_result(said[2])

    def ended(self) -> None:
        for asked in self._asked.values():
            asked.set_result(LOST)
