"""How a web server's process ends: the signal begins the close, the close budget bounds all (G4).

A web server first waits for its clients, as long as they like, and only then ends our lifespan: a
request that hangs in the database would hold up the close, and the kernel would go on claiming.
So the signal itself is heard here, beside the server's own handler.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from kernel.conf import conf

log = logging.getLogger(__name__)

EXIT_LEFT_WORK = 3
GRACE_SECONDS = 0.4  # after the budget: for the server to say goodbye by itself


def hear_stop_signals(begin_close: Callable[[], object]) -> None:
    """Call `begin_close` in this event loop at SIGTERM or SIGINT, after the server's own handler.

    From then on the process has the close budget; what hangs after that is left behind with exit
    code 3: its rows say what became of it. Nothing where the server hears no signals itself.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        servers = signal.getsignal(number)
        if callable(servers) and servers is not signal.default_int_handler:
            signal.signal(number, _Heard(servers, loop, begin_close))


class _Heard:
    """The handler of one signal."""

    def __init__(
        self,
        servers: Callable[[int, FrameType | None], object],
        loop: asyncio.AbstractEventLoop,
        begin_close: Callable[[], object],
    ):
        self._servers, self._loop, self._begin_close = servers, loop, begin_close
        self._is_heard = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._servers(number, frame)
        if self._is_heard or self._loop.is_closed():
            return
        self._is_heard = True
        self._loop.call_soon_threadsafe(self._begin_close)
        timer = threading.Timer(conf.close_budget_seconds + GRACE_SECONDS, leave)
        timer.daemon = True
        timer.start()


def leave() -> None:
    """End this process now: its threads hang, and the interpreter would wait for them."""
    log.warning("the close budget of %s s is over; what hangs is left", conf.close_budget_seconds)
    logging.shutdown()
    os._exit(EXIT_LEFT_WORK)
