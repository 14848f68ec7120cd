"""The parts of the benchmark, in order. Imported after the environment names the database."""

from dataclasses import dataclass, field

import django

django.setup()

from django.db import connections  # noqa: E402  - Django must be set up first

from kernel import schema  # noqa: E402
from kernel.models import Request  # noqa: E402
from tests.bench import gateway, product, streams, tables  # noqa: E402
from tests.support.mariadb_server import Server  # noqa: E402

SMALL_ROWS = 10_000
SETTLED_ROWS = 20_000
STREAMS = 1000


@dataclass(slots=True)
class Found:
    """Everything that was measured."""

    calls: list[gateway.Row] = field(default_factory=list)
    opened: streams.Result | None = None
    settled_per_second: float = 0.0
    pages: list[tables.Page] = field(default_factory=list)
    start_seconds: list[float] = field(default_factory=list)


def everything(server: Server, *, quick: bool, rows: int, only: str) -> Found:
    """Run what `only` names, or all of it; each part on its own schema."""
    found = Found()
    if only in ("", "start"):
        with server.schema() as url:
            for _ in range(3):
                with product.running(url) as running:
                    found.start_seconds.append(running.ready_seconds)
    if only in ("", "gateway"):
        with server.schema() as url:
            found.calls = gateway.measure(url, quick=quick)
    if only in ("", "streams"):
        with server.schema() as url:
            found.opened = streams.measure(url, streams=100 if quick else STREAMS)
    if only in ("", "settlement", "pages"):
        schema.migrate()
        found.settled_per_second = tables.settle_per_second(2000 if quick else SETTLED_ROWS)
    if only in ("", "pages"):
        pattern = Request.objects.get(operation_id="pattern")
        Request.objects.filter(operation_id__startswith="copy-").delete()
        small = 1000 if quick else SMALL_ROWS
        tables.grow(pattern, small)
        found.pages += tables.pages(small)
        Request.objects.filter(operation_id__startswith="copy-").delete()
        tables.grow(pattern, rows)
        found.pages += tables.pages(rows)
    connections.close_all()
    return found
