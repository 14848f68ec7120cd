"""The process that sends one chat message: `python -m kernel.delivery.chat_process`.

Reads {address, title, body, allow_private, seconds, memory_bytes} as JSON, writes {read, taken,
dialled, refused, status}. apprise brings its own network code: here every address it dials is
checked first, it starts no program, follows no redirect, and its process ends when its time or its
memory is over: it reads an answer whole, however long.
"""

import json
import logging
import os
import re
import resource
import signal
import sys
from importlib import import_module
from typing import Any

from kernel.http.addresses import AddressPolicy
from kernel.http.guard import Guard

STATUS = re.compile(r"\berror=([1-5]\d\d)\b")


class _Statuses(logging.Handler):
    """The last status that apprise writes to its log; nothing else of it, for it may be secret."""

    last: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        if found := STATUS.search(record.getMessage()):
            self.last = int(found[1])


def main() -> None:
    """One message."""
    answer, sys.stdout = sys.stdout, sys.stderr  # what plugins print is no answer
    order = json.loads(sys.stdin.buffer.read())
    signal.alarm(max(1, round(order["seconds"]) + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (order["memory_bytes"], order["memory_bytes"]))
    answer.write(json.dumps(send(order)))
    answer.flush()


def send(order: dict[str, Any]) -> dict[str, Any]:
    """Send it, guarded from now on."""
    apprise: Any = import_module("apprise")
    sessions: Any = import_module("requests.sessions")
    sessions.DEFAULT_REDIRECT_LIMIT = 0
    statuses = _Statuses()
    logging.getLogger("apprise").addHandler(statuses)
    guard = Guard(AddressPolicy(allow_private=order["allow_private"]))
    guard.install()
    target = apprise.Apprise.instantiate(order["address"])
    taken = bool(target and target.notify(title=order["title"], body=order["body"]))
    return {
        "read": bool(target),
        "taken": taken,
        "dialled": guard.dialled,
        "refused": guard.refused,
        "status": statuses.last,
    }


if __name__ == "__main__":
    main()
    os._exit(0)  # threads of plugins are not waited for
