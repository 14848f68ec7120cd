"""The jobs' side of this process as the console reaches it: its state store and its worker."""

from django.http import HttpRequest

from console.acting import kernel_of
from kernel.errors import Unavailable
from kernel.kernel import Kernel
from kernel.state import DatabaseStore, RuntimeStateStore


def store_of(request: HttpRequest) -> RuntimeStateStore:
    """The state store of this process's kernel; the database where it runs none."""
    kernel = _kernel_or_none(request)
    return kernel.store if kernel else DatabaseStore()


def wake_worker(request: HttpRequest) -> None:
    """Say "look" to this process's worker. Nothing depends on it: workers look by themselves."""
    kernel = _kernel_or_none(request)
    if kernel is not None and kernel.loop is not None:
        kernel.loop.call_soon_threadsafe(kernel.worker.wake)


def start_pass(request: HttpRequest, name: str) -> None:
    """Start a maintenance pass now where this process runs a kernel; else it comes by itself."""
    kernel = _kernel_or_none(request)
    if kernel is not None and kernel.loop is not None:
        kernel.loop.call_soon_threadsafe(kernel.run_pass, name)


def _kernel_or_none(request: HttpRequest) -> Kernel | None:
    try:
        return kernel_of(request)
    except Unavailable:
        return None
