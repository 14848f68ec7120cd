"""Say "look": after the commit that made work due, other processes are told. Carries no truth.

Who listens is a matter of the process: with an engine that sends messages a Messenger does, else
nobody. A wake-up that is lost costs at most one poll of whoever looks at the table (D1).
"""

import logging
import threading
from collections.abc import Callable
from functools import partial

from prometheus_client import Counter

from kernel.transactions import after_commit_in_tx, requires_transaction

log = logging.getLogger(__name__)

JOBS, NOTIFICATIONS = "jobs", "notifications"
RETRY_SECONDS = 1.0

MESSAGES = Counter("bailing_wake_messages", "Wake-up messages by what became of them", ["outcome"])

Listener = Callable[[str], None]
_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Call `listener(what)` after each commit that made work due. It must not wait or fail."""
    _listeners.append(listener)


def stop_listening(listener: Listener) -> None:
    """Undo `listen`. Safe to repeat."""
    if listener in _listeners:
        _listeners.remove(listener)


@requires_transaction
def wake_after_commit_in_tx(*, what: str) -> None:
    """Say, once this transaction is committed, that jobs or notifications are due.

    Where the commit's acknowledgement is lost nobody is told; whoever polls finds the row.
    """
    if _listeners:
        after_commit_in_tx(partial(_tell, what))


def _tell(what: str) -> None:
    for listener in tuple(_listeners):
        listener(what)


class Messenger:
    """Sends wake-ups on a thread of its own, so that no caller ever waits or fails.

    `send(what)` is the effect; it must end by itself within a short time. What is said while one is
    under way or within `linger_seconds` is sent as one. A message that cannot be sent is counted,
    logged once until one is sent again, and dropped.
    """

    def __init__(self, send: Callable[[str], None], *, linger_seconds: float):
        self._send, self._linger = send, linger_seconds
        self._due: set[str] = set()
        self._said = threading.Event()
        self._stopping = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="bailing-wake", daemon=True)

    def start(self) -> "Messenger":
        """Begin to listen and to send."""
        self._thread.start()
        listen(self.say)
        return self

    def stop(self, *, seconds: float) -> None:
        """Say nothing more; waits at most so long for a message that is on its way."""
        stop_listening(self.say)
        self._stopping.set()
        self._said.set()
        self._thread.join(seconds)

    def say(self, what: str) -> None:
        """That this is due. Only memory is touched."""
        self._due.add(what)
        self._said.set()

    def _run(self) -> None:
        while not self._stopping.is_set():  # looked at again: a clear() may have met stop()
            self._said.wait()
            if self._stopping.is_set():
                return
            self._said.clear()
            for what in list(self._due):
                self._due.discard(what)
                self._send_one(what)
            self._stopping.wait(RETRY_SECONDS if self._is_failing else self._linger)

    def _send_one(self, what: str) -> None:
        try:
            self._send(what)
        except Exception as error:
            MESSAGES.labels("failed").inc()
            if not self._is_failing:
                # Only the kind: the words of a client may hold its address.
                log.warning("the broker takes no wake-ups: %s", type(error).__name__)
            self._is_failing = True
            return
        MESSAGES.labels("sent").inc()
        if self._is_failing:
            log.info("the broker takes wake-ups again")
        self._is_failing = False
