"""The dead-letter screens at two table sizes, side by side; the stock admin list too (L1)."""

import time
from contextlib import ExitStack

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from console.paging import Cursor
from kernel.access import ensure_roles
from kernel.models import DeadLetter
from tests.bench import pages, post, rows
from tests.support.mariadb_server import Server

QUERIES_MAX, RATIO_MAX = 10, 1.3
# What finds less than a page of the small table is judged by the database's part alone.
SPARSE = ("List, one group, open", "List, one account, open", "List, one destination, open")
WAITING_MAX_MS = 20.0


def measure(server: Server, *, count: int, small: int, times: int) -> pages.Result:
    """Open each page `times` times at both sizes, alternating, so that both see the same noise."""
    with ExitStack() as stack:
        tables, spent = [], 0.0
        for size in (small, count):
            name = stack.enter_context(rows.migrated(server))
            started = time.perf_counter()
            post.grown(count=size)
            spent = time.perf_counter() - started
            tables.append((name, size, _openers(size)))
        found = []
        for page_name in tables[0][2]:
            calls = max(times // 5, 2) if page_name == pages.STOCK else times
            found += pages.alternate(page_name, tables, calls)
        connection.close()
    return pages.Result(found, spent)


def _openers(size: int) -> dict[str, pages.Open]:
    """The pages of the schema chosen now, by name; each opens for a signed-in person."""
    ensure_roles()
    user = User.objects.create(username="bench", is_staff=True, is_superuser=True)
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    middle = DeadLetter.objects.values_list("created_at", "id").get(id=f"dlq_copy{size // 2:09}")
    cursor, group = Cursor(*middle).text(), f"{'f' * 30}07"
    addresses = {
        "Groups": "/dead-letters/",
        "List": "/dead-letters/list/",
        "List, a page in the middle": f"/dead-letters/list/?after={cursor}",
        "List, open (1 in 50)": "/dead-letters/list/?state=open",
        "List, one group": f"/dead-letters/list/?group={group}",
        "List, one group, open": f"/dead-letters/list/?group={group}&state=open",
        "List, one account, open": "/dead-letters/list/?account=account-7&state=open",
        "List, one destination, open": "/dead-letters/list/?destination=dst_3&state=open",
    }
    openers = {name: pages.get(client, address) for name, address in addresses.items()}
    columns = ("id", "account_id", "channel", "recipient", "state", "created_at")
    stock = pages.stock_admin(user, model=DeadLetter, columns=columns, newest_by="created_at")
    return {**openers, pages.STOCK: stock}
