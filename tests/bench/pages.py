"""Requests and Home at two table sizes, side by side; the stock admin list on the same tables."""

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta

from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Model
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from console.paging import Cursor
from kernel import clock
from kernel.access import ensure_roles
from kernel.models import Request
from tests.bench import rows
from tests.bench.waited import waited
from tests.support import lives
from tests.support.mariadb_server import Server

SMALL_ROWS = 10_000
TARGET_MS = 60
QUERIES_MAX = 9
STOCK = "Stock admin list"
Open = Callable[[], None]


@dataclass(slots=True)
class Page:
    """One page at one table size: its statements, the milliseconds of each call."""

    name: str
    rows: int
    queries: int
    spans_ms: list[float] = field(default_factory=list)
    database_ms: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The fastest call: noise only ever adds."""
        return min(self.spans_ms)

    def percentile(self, share: float) -> float:
        """Milliseconds at `share`."""
        return statistics.quantiles(self.spans_ms, n=100, method="inclusive")[int(share * 100) - 1]


@dataclass(slots=True)
class Result:
    """All pages, small table first, and how long the large one took to load."""

    pages: list[Page]
    load_seconds: float


def measure(server: Server, *, count: int, small: int, times: int) -> Result:
    """Open each page `times` times at both sizes, alternating, so that both see the same noise."""
    with ExitStack() as stack:
        tables, spent = [], 0.0
        for size in (small, count):
            name = stack.enter_context(rows.migrated(server))
            lives.open_account(cap_nano=None)
            lives.add_service()
            started = time.perf_counter()
            rows.fill(pattern=lives.settled("pattern"), rows=size, columns=rows.MIX)
            spent = time.perf_counter() - started
            tables.append((name, size, _openers()))
        found = []
        for page_name in tables[0][2]:
            calls = max(times // 5, 2) if page_name == STOCK else times
            found += alternate(page_name, tables, calls)
        connection.close()
    return Result(found, spent)


def alternate(
    page_name: str, tables: list[tuple[str, int, dict[str, Open]]], times: int
) -> list[Page]:
    """One page at each size, `times` calls each, in turns. `tables`: schema, rows, openers."""
    pages = []
    for schema, size, openers in tables:
        rows.choose(schema)
        openers[page_name]()
        with CaptureQueriesContext(connection) as captured:
            openers[page_name]()
        pages.append(Page(page_name, size, len(captured)))
    for _ in range(times):
        for page, (schema, _size, openers) in zip(pages, tables, strict=True):
            rows.choose(schema)
            _open_timed(page, openers[page_name])
    return pages


def _open_timed(page: Page, act: Open) -> None:
    with waited() as database:
        started = time.perf_counter()
        act()
        page.spans_ms.append((time.perf_counter() - started) * 1000)
    page.database_ms.append(database.seconds * 1000)


def _openers() -> dict[str, Open]:
    """The pages of the schema chosen now, by name; each opens for a signed-in person."""
    ensure_roles()
    user = User.objects.create(username="bench", is_staff=True, is_superuser=True)
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    middle = Request.objects.order_by("updated_at").filter(
        updated_at__gte=clock.db_now() - timedelta(days=45)
    )[0]
    cursor = Cursor(middle.updated_at, middle.id).text()
    week = f"{clock.db_now() - timedelta(days=30):%Y-%m-%d}"
    addresses = {
        "Requests": "/requests/",
        "Requests, a page in the middle": f"/requests/?after={cursor}",
        "Requests, complete": "/requests/?state=complete",
        "Requests, one account": "/requests/?account=account-7",
        "Requests, complete and settled until a month ago": (
            f"/requests/?state=complete&billing=settled&until={week}"
        ),
        "Requests, unknown (1 in 1,000)": "/requests/?state=unknown",
        "Requests, one account, failed (1 in 1,900)": "/requests/?account=account-7&state=failed",
        "Home": "/",
    }
    openers = {name: get(client, address) for name, address in addresses.items()}
    columns = ("id", "account_id", "service_id", "result_state", "billing_state", "updated_at")
    stock = stock_admin(user, model=Request, columns=columns, newest_by="updated_at")
    return {**openers, STOCK: stock}


def get(client: Client, address: str) -> Open:
    """Opens one address; RuntimeError unless it answers 200."""

    def open_page() -> None:
        answer = client.get(address)
        if answer.status_code != 200:
            raise RuntimeError(f"{address} answered {answer.status_code}")

    return open_page


def stock_admin(user: User, *, model: type[Model], columns: Sequence[str], newest_by: str) -> Open:
    """What one gets by registering the model: the same columns, order and page size as ours."""

    class StockAdmin(ModelAdmin):
        list_display = columns
        ordering = (f"-{newest_by}", "-id")
        list_per_page = 50

    admin = StockAdmin(model, AdminSite())
    factory = RequestFactory()

    def open_page() -> None:
        request = factory.get("/admin/", SERVER_NAME="localhost")
        request.user = user
        admin.changelist_view(request).render()

    return open_page
