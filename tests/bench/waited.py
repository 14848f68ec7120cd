"""How long a block waited for the database: the driver, the way there and back, the server."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


class Waited:
    """Seconds so far."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        started = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            self.seconds += time.perf_counter() - started


@contextmanager
def waited() -> Iterator[Waited]:
    """Count what this thread's statements take inside the block; COMMIT is not among them."""
    counter = Waited()
    with connection.execute_wrapper(counter):
        yield counter
