"""From a console request to the kernel: who acts, and effects on the kernel's own loop."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.http import HttpRequest

from console.responses import form_key
from kernel.audit import Actor
from kernel.errors import Unavailable
from kernel.kernel import Kernel

R = TypeVar("R")
EFFECT_SECONDS = 20


def actor_of(request: HttpRequest) -> Actor:
    """The signed-in person, this HTTP request and, for a form, its key: one act per rendered form."""
    return Actor(
        "user",
        request.user.get_username(),
        request_id=getattr(request, "request_id", ""),
        act_key=form_key(request) if request.method == "POST" else "",
    )


def kernel_of(request: HttpRequest) -> Kernel:
    """The kernel of this process. Unavailable in a process that runs none."""
    kernel = getattr(request, "scope", {}).get("kernel")
    if kernel is None:
        raise Unavailable(
            "This process runs no kernel.", next_action="Use a console served by console.asgi."
        )
    return kernel


def on_kernel_loop(request: HttpRequest, effect: Callable[[Kernel], Coroutine[Any, Any, R]]) -> R:
    """Run `effect(kernel)` on the kernel's event loop and wait for it, from a console thread."""
    kernel = kernel_of(request)
    if kernel.loop is None:
        raise Unavailable("The kernel has not started yet.")
    future = asyncio.run_coroutine_threadsafe(effect(kernel), kernel.loop)
    try:
        return future.result(timeout=EFFECT_SECONDS)
    except FutureTimeout:
        raise Unavailable(
            "The kernel takes long to answer; what was started goes on.",
            next_action="Reload the page to see where it stands.",
        ) from None


def version_of(moment: datetime) -> int:
    """A row's `updated_at` as the version a form carries: microseconds since 1970."""
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def moment_of(version: int) -> datetime:
    """The inverse of version_of."""
    seconds, micros = divmod(version, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
