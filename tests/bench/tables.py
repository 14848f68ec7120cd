"""Settlement per second, and list pages on a million requests, in this process on one schema."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.auth.models import User
from django.db import connection, reset_queries
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from kernel import clock
from kernel.access import ensure_roles
from kernel.models import Account, Request
from kernel.usage.settlement import settlement_page
from tests.support import lives


@dataclass(frozen=True, slots=True)
class Page:
    """One page at one table size: 95th percentile in milliseconds, and its number of queries."""

    name: str
    rows: int
    p95_ms: float
    queries: int


def settle_per_second(rows: int) -> float:
    """Pending requests settled per second, pages of 50, one process."""
    lives.open_account(cap_nano=None)
    lives.add_service()
    pattern = lives.complete("pattern")
    Request.objects.filter(id=pattern.id).update(billing_state="not_charged")
    grow(pattern, rows, billing_state="pending")
    started, cursor, settled = time.perf_counter(), None, 0
    while True:
        report = settlement_page(cursor=cursor, limit=50)
        settled += report.settled
        cursor = report.cursor
        if cursor is None:
            break
    seconds = time.perf_counter() - started
    if settled != rows:
        raise RuntimeError(f"{settled} of {rows} settled")
    consumed = Account.objects.get(id=lives.ACCOUNT).consumed_nano
    if consumed != rows * lives.CHARGE_NANO:
        raise RuntimeError("consumed is not the sum of the ledger")
    return rows / seconds


def grow(pattern: Request, rows: int, **values: object) -> None:
    """Copy `pattern` until the table has `rows` more, times spread over the past, ids unique."""
    batch, made = 2000, 0
    start = clock.db_now() - timedelta(days=90)
    step = timedelta(days=89) / max(rows, 1)
    while made < rows:
        count = min(batch, rows - made)
        copies = []
        for number in range(made, made + count):
            copy = Request(**{f.attname: getattr(pattern, f.attname) for f in Request._meta.fields})
            at = start + step * number
            copy.id, copy.operation_id = f"req_copy{number:09d}", f"copy-{number}"
            copy.admitted_at = copy.dispatched_at = copy.result_at = copy.updated_at = at
            for name, value in values.items():
                setattr(copy, name, value)
            if not values:
                copy.result_state, copy.billing_state = _mix(number)
            copies.append(copy)
        Request.objects.bulk_create(copies)
        made += count


def _mix(number: int) -> tuple[str, str]:
    if number % 1000 == 1:
        return "unknown", "pending"
    if number % 100 == 2:
        return "failed", "not_charged"
    if number % 500 == 3:
        return "complete", "pending"
    return "complete", "settled"


def pages(rows: int) -> list[Page]:
    """The Requests list by common and sparse filters, and Home; the stock admin beside them."""
    ensure_roles()
    user, _created = User.objects.get_or_create(
        username="bench", defaults={"is_staff": True, "is_superuser": True}
    )
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    wanted = {
        "Requests": "/requests/",
        "Requests, state complete": "/requests/?state=complete",
        "Requests, state unknown": "/requests/?state=unknown",
        "Requests, account and state": f"/requests/?account={lives.ACCOUNT}&state=failed",
        "Home": "/",
    }
    found = []
    for name, address in wanted.items():

        def open_page(address: str = address) -> None:
            answer = client.get(address)
            if answer.status_code != 200:
                raise RuntimeError(f"{address} answered {answer.status_code}")

        found.append(_timed(name, rows, open_page, times=20))
    found.append(_timed("Stock admin list", rows, _stock_admin(user), times=3))
    return found


def _stock_admin(user: User) -> Callable[[], None]:
    admin = ModelAdmin(Request, AdminSite())
    factory = RequestFactory()

    def open_page() -> None:
        request = factory.get("/admin/kernel/request/", SERVER_NAME="localhost")
        request.user = user
        admin.changelist_view(request).render()  # type: ignore[attr-defined]  # a TemplateResponse

    return open_page


def _timed(name: str, rows: int, act: Callable[[], None], *, times: int) -> Page:
    act()
    with CaptureQueriesContext(connection) as captured:
        act()
    queries = len(captured)
    reset_queries()
    spans = []
    for _ in range(times):
        started = time.perf_counter()
        act()
        spans.append((time.perf_counter() - started) * 1000)
    p95 = statistics.quantiles(spans, n=20)[-1] if times >= 20 else max(spans)
    return Page(name, rows, p95, queries)
