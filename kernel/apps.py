"""The kernel as a Django application."""

import threading

from django.apps import AppConfig
from django.db import connections

# Each use of `connection` looks this thread's connection up. Django's store asks first whether an
# event loop runs here and raises inside to learn that none does: 8.6 us instead of 0.24, some
# hundred times per request. The ORM refuses to work where a loop runs, so a plain thread-local is
# the same. Set before the first connection exists.
connections._connections = threading.local()  # type: ignore[attr-defined]  # not in the stubs


class KernelConfig(AppConfig):
    name = "kernel"
    label = "kernel"
    verbose_name = "Bailing kernel"
