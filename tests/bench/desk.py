"""The approvals list at two table sizes, side by side; raw rows and the stock admin list too."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from console.paging import Cursor
from kernel import clock
from kernel.access import ensure_roles
from kernel.models import Approval
from tests.bench import pages, rows, work_rows
from tests.support.mariadb_server import Server

QUERIES_MAX, RATIO_MAX = 10, 1.3
RAW = "Raw rows (/admin/)"


@dataclass(slots=True)
class Result:
    """All pages, small table first; rows read by one call, by page and size."""

    pages: list[pages.Page]
    load_seconds: float
    rows_read: dict[tuple[str, int], int] = field(default_factory=dict)


def measure(server: Server, *, count: int, small: int, times: int) -> Result:
    """Open each page `times` times at both sizes, alternating, so that both see the same noise."""
    with ExitStack() as stack:
        tables, spent = [], 0.0
        for size in (small, count):
            name = stack.enter_context(rows.migrated(server))
            work_rows.desk()
            started = time.perf_counter()
            work_rows.grown(count=size)
            spent = time.perf_counter() - started
            tables.append((name, size, _openers()))
        result = Result([], spent)
        for page_name in tables[0][2]:
            calls = max(times // 5, 2) if page_name == pages.STOCK else times
            result.pages += pages.alternate(page_name, tables, calls)
            for schema, size, openers in tables:
                rows.choose(schema)
                result.rows_read[page_name, size] = _rows_read(openers[page_name])
        connection.close()
    return result


def _rows_read(act: pages.Open) -> int:
    """Rows and index entries the server handed up while one page was made."""
    before = _handler_reads()
    act()
    return _handler_reads() - before


def _handler_reads() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for _name, value in cursor.fetchall())


def _openers() -> dict[str, pages.Open]:
    """The pages of the schema chosen now, by name; each opens for a signed-in person."""
    ensure_roles()
    user = User.objects.create(username="bench", is_staff=True, is_superuser=True)
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    middle = Approval.objects.order_by("created_at").filter(
        created_at__gte=clock.db_now() - timedelta(days=45)
    )[0]
    cursor = Cursor(middle.created_at, middle.id).text()
    addresses = {
        "Open": "/approvals/",
        "Decided": "/approvals/decided/",
        "Decided, a page in the middle": f"/approvals/decided/?after={cursor}",
        "Decided, one account": "/approvals/decided/?account=account-7",
        "Expired and cancelled": "/approvals/expired/",
        RAW: "/admin/kernel/approval/",
    }
    openers = {name: pages.get(client, address) for name, address in addresses.items()}
    columns = ("id", "account_id", "tool", "risk", "state", "created_at")
    stock = pages.stock_admin(user, model=Approval, columns=columns, newest_by="created_at")
    return {**openers, pages.STOCK: stock}
