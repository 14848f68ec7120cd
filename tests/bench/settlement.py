"""Settlement per second: pages of 50 pending requests, in this process, on one schema."""

import time
from dataclasses import dataclass

from django.db import connection
from django.test.utils import CaptureQueriesContext

from kernel.models import Account, LedgerRow, Request
from kernel.states import Billing
from kernel.usage.settlement import settlement_page
from tests.bench import rows
from tests.bench.waited import waited
from tests.support import lives
from tests.support.mariadb_server import Server

PAGE_ROWS = 50
TARGET_PER_SECOND = 2500


@dataclass(frozen=True, slots=True)
class Result:
    """Requests settled per second, round by round; where the time of one request went."""

    rows: int
    per_second: list[float]
    page_ms: list[float]
    cpu_us: float
    queries_per_page: int
    database_share: float


def measure(server: Server, *, count: int, rounds: int) -> Result:
    """Settle `count` requests `rounds` times, each on a fresh schema; each round is checked."""
    rates, spans, cpu, share, queries = [], [], 0.0, 0.0, 0
    for _ in range(rounds):
        with rows.migrated(server):
            lives.open_account(cap_nano=None)
            lives.add_service()
            rows.fill(pattern=lives.complete("pattern"), rows=count, columns=rows.PENDING)
            queries = _queries_of_a_page()
            left = count - PAGE_ROWS
            cpu_before, started = time.process_time(), time.perf_counter()
            with waited() as database:
                settled = _settle_all(spans)
            seconds = time.perf_counter() - started
            cpu = (time.process_time() - cpu_before) / left * 1e6
            share = database.seconds / seconds
            if settled != left:
                raise RuntimeError(f"{settled} of {left} settled")
            rates.append(left / seconds)
            _check(count)
    return Result(count, rates, spans, cpu, queries, share)


def _queries_of_a_page() -> int:
    with CaptureQueriesContext(connection) as captured:
        settlement_page(cursor=None, limit=PAGE_ROWS)
    return len(captured)


def _settle_all(spans_ms: list[float]) -> int:
    cursor, settled = None, 0
    while True:
        started = time.perf_counter()
        report = settlement_page(cursor=cursor, limit=PAGE_ROWS)
        spans_ms.append((time.perf_counter() - started) * 1000)
        settled += report.settled
        cursor = report.cursor
        if cursor is None:
            return settled


def _check(count: int) -> None:
    consumed = Account.objects.get(id=lives.ACCOUNT).consumed_nano
    left = Request.objects.exclude(billing_state=Billing.SETTLED).count()
    if (consumed, LedgerRow.objects.count(), left) != (count * lives.CHARGE_NANO, count, 0):
        raise RuntimeError("consumed, ledger and requests do not agree")
