"""A second start of standalone: from the process's start until /readyz says yes."""

import tempfile
from dataclasses import dataclass

from tests.bench import product
from tests.support.mariadb_server import Server

TARGET_SECONDS = 3


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds of each second start, on the embedded file and on the server."""

    embedded: list[float]
    server: list[float]


def measure(server: Server, *, times: int) -> Result:
    """Start once and close, then `times` more on the same data."""
    with server.schema() as url:
        return Result(embedded=_starts("", times), server=_starts(url, times) if times > 1 else [])


def _starts(url: str, times: int) -> list[float]:
    found = []
    with tempfile.TemporaryDirectory(prefix="bz-bench-") as directory:
        for number in range(1 + times):
            with product.running(url, directory=directory, again=number > 0) as running:
                found.append(running.ready_seconds)
    return found[1:]
