"""The ASGI application: one kernel, two doors.

The API skips Django's middleware, the console has all.

`create_application()` is for standalone, which owns the kernel; `application` is for a web server
such as uvicorn: its lifespan starts a kernel, ticks it, and closes it at the signal to end, at the
latest on shutdown (G4). With
BAILING_ENGINE=celery beat ticks the workers instead, and commits wake them by messages.
"""

import asyncio
import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from console.entry import reason_not_to_start

if reason := reason_not_to_start():
    sys.exit(reason)

# WhiteNoise serves small files from a plain iterator; Django says so at each of them.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")

from asgiref.sync import sync_to_async  # noqa: E402  - Django must be set up first
from django.conf import settings  # noqa: E402
from django.core.handlers.asgi import ASGIHandler  # noqa: E402
from django.core.handlers.base import BaseHandler  # noqa: E402
from django.http import HttpRequest, HttpResponseBase  # noqa: E402
from django.utils.module_loading import import_string  # noqa: E402

from console.ending import hear_stop_signals  # noqa: E402
from console.proxies import TrustedProxies  # noqa: E402
from kernel.api.bounded import BoundedBody  # noqa: E402
from kernel.api.handler import ApiHandler  # noqa: E402
from kernel.conf import conf  # noqa: E402
from kernel.kernel import Kernel  # noqa: E402
from kernel.metrics import register_kernel  # noqa: E402
from kernel.runtime.wake import Messenger  # noqa: E402
from kernel.startup import apply_environment  # noqa: E402

log = logging.getLogger(__name__)

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Any], Awaitable[None]]

API_PREFIXES = ("/v1/", "/usage/v1/")
PROBES = ("/livez", "/readyz", "/metrics")
TICK_SECONDS = 0.5


class ConsoleHandler(ASGIHandler):
    """Django's handler with its chain loaded as synchronous: every middleware and view of ours is.

    A request goes to its thread once. Loaded as asynchronous, it would change between loop and
    thread at each middleware and hook that can be either, for a tenth of a page's processor time.
    """

    def __init__(self) -> None:
        BaseHandler.__init__(self)
        self.load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """The whole chain, in the thread of this request."""
        return await sync_to_async(self.get_response, thread_sensitive=True)(request)


class Application:
    """Splits by path and hands the kernel to both doors in the scope."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self._api = ApiHandler()
        self._console = ConsoleHandler()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope["kernel"] = self.kernel
        path = scope["path"]
        is_api = path.startswith(API_PREFIXES) or path in PROBES
        await (self._api if is_api else self._console)(scope, receive, send)


class Lifespan:
    """Runs a kernel for the life of a web server: initialize, tick, close within the budget."""

    def __init__(self) -> None:
        self._kernel: Kernel | None = None
        self._application: Any = None
        self._ticker: asyncio.Task[None] | None = None
        self._messenger: Messenger | None = None
        self._closing: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._application(scope, receive, send)
            return
        await receive()
        try:
            await self._start()
        except Exception as error:
            log.exception("the kernel did not start")
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        hear_stop_signals(self._begin_close)
        await receive()
        await self._begin_close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        self._kernel = Kernel()
        await self._kernel.initialize()
        await self._kernel.database.in_tx(apply_environment, environ=os.environ, demo=False)
        self._application = create_application(self._kernel)
        if settings.ENGINE.is_celery:
            # By name: without the setting Celery is not even loaded.
            self._messenger = import_string("console.celery.messenger")().start()
        else:
            self._ticker = asyncio.get_running_loop().create_task(tick_for_ever(self._kernel))

    def _begin_close(self) -> "asyncio.Task[None]":
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._stop())
        return self._closing

    async def _stop(self) -> None:
        assert self._kernel is not None
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker
        report = await self._kernel.close()
        if self._messenger is not None:
            await asyncio.to_thread(self._messenger.stop, seconds=conf.wake_timeout_seconds)
        if not report.drained:
            log.warning("close ran out of time; left: %s", report.left)


async def tick_for_ever(kernel: Kernel) -> None:
    """Tick at once and then every `TICK_SECONDS`, until cancelled.

    A failing tick never ends the timer (B1).
    """
    while True:
        try:
            await kernel.tick()
        except Exception:
            log.exception("a tick failed")
        await asyncio.sleep(TICK_SECONDS)


def create_application(kernel: Kernel) -> Any:
    """The two doors around `kernel`, behind the bound on bodies and the trusted proxies (E5)."""
    register_kernel(kernel)
    doors = TrustedProxies(Application(kernel), trusted=settings.TRUSTED_PROXIES)
    return BoundedBody(doors, body_bytes_max=conf.request_body_bytes_max)


application = Lifespan()
