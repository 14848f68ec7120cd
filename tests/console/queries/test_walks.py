"""Which index a list walks, and how many rows that reads on a server."""

import itertools
from datetime import timedelta

import pytest
from django.db import connection
from django.http import QueryDict

from console.filters import read_filters
from console.paging import Cursor
from console.queries.requests import FILTERS, request_page
from console.queries.walks import (
    BY_ACCOUNT,
    BY_ACCOUNT_STATE,
    BY_BILLING,
    BY_STATE,
    BY_TIME,
    index_for,
    walk,
)
from kernel import clock
from kernel.models import Request
from tests.support import lives
from tests.support.fixtures import server_db

__all__ = ["server_db"]

ROWS = 20_000
READS_MAX = 1_500  # of one page; the optimizer, left alone, read 7,900 and more
MIX = {  # of each thousand rows, by number: result, billing, reason
    1: ("unknown", "pending", "no_usage"),
    3: ("cancelled", "not_charged", "cancelled"),
    5: ("dispatched", "open", ""),
    7: ("admitted", "open", ""),
    **dict.fromkeys((9, 509), ("complete", "pending", "no_usage")),
    **dict.fromkeys((2, 102, 202, 302), ("failed", "not_charged", "rejected")),
    402: ("failed", "settled", ""),
    11: ("complete", "not_charged", "written_off"),
}


@pytest.mark.parametrize(
    ("values", "index"),
    [
        ({}, BY_TIME),
        ({"state": "complete"}, BY_STATE),
        ({"state": "unknown"}, BY_STATE),
        ({"billing": "settled"}, BY_BILLING),
        ({"state": "complete", "billing": "settled"}, BY_STATE),
        ({"state": "complete", "billing": "pending"}, BY_BILLING),
        ({"state": "failed", "billing": "settled"}, BY_STATE),
        ({"state": "failed", "billing": "pending"}, BY_BILLING),
        ({"state": "unknown", "billing": "pending"}, BY_STATE),
        ({"account": "a"}, BY_ACCOUNT),
        ({"account": "a", "state": "complete"}, BY_ACCOUNT_STATE),
        ({"account": "a", "state": "failed", "billing": "settled"}, BY_ACCOUNT_STATE),
        ({"account": "a", "state": "complete", "billing": "pending"}, BY_BILLING),
        ({"account": "a", "billing": "pending"}, BY_BILLING),
        ({"account": "a", "billing": "not_charged"}, BY_BILLING),
        ({"account": "a", "billing": "settled"}, BY_ACCOUNT),
    ],
)
def test_the_smallest_set_of_rows_is_walked(values, index):
    assert index_for(values) == index


def test_every_index_that_is_named_exists():
    names = {index.name for index in Request._meta.indexes}
    assert {BY_TIME, BY_STATE, BY_ACCOUNT, BY_ACCOUNT_STATE, BY_BILLING} <= names


def test_a_walk_gives_the_same_rows_also_when_filtered_further(db):
    lives.open_account()
    lives.add_service()
    made = {lives.unknown("op-1").id, lives.settled("op-2").id}
    rows = walk(Request.objects.filter(account_id="acme"), BY_ACCOUNT)
    assert set(rows.values_list("id", flat=True)) == made
    assert rows.filter(result_state="unknown").exclude(id="x").count() == 1
    assert len(rows.order_by("-updated_at")[:1]) == 1


@pytest.fixture
def many_rows(server_db: None) -> None:
    """A table in which almost everything is complete and settled, as in production."""
    lives.open_account(cap_nano=None)
    lives.add_service()
    pattern = lives.settled("pattern")
    start = clock.db_now() - timedelta(seconds=ROWS)
    for first in range(0, ROWS, 2_000):
        Request.objects.bulk_create(
            _copy(pattern, number, start) for number in range(first, first + 2_000)
        )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE bz_usage_requests")
        cursor.fetchall()


def _copy(pattern, number, start):
    copy = Request(**{f.attname: getattr(pattern, f.attname) for f in Request._meta.fields})
    copy.id, copy.operation_id = f"req_{number:012d}", f"copy-{number}"
    copy.account_id = "acme" if number % 2 else f"small-{number % 40}"
    copy.updated_at = copy.admitted_at = start + timedelta(seconds=number)
    result, billing, reason = MIX.get(number % 1000, ("complete", "settled", ""))
    copy.result_state, copy.billing_state, copy.pending_reason = result, billing, reason
    return copy


def row_reads():
    """How many index entries and rows this connection has read so far."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for name, value in cursor.fetchall() if "rnd_deleted" not in name)


def combinations():
    states = ("", "complete", "failed", "unknown", "admitted")
    billings = ("", "settled", "pending", "not_charged")
    accounts = ("", "acme", "small-2", "nobody")
    week = f"&since={clock.now() - timedelta(seconds=ROWS * 0.6):%Y-%m-%dT%H:%M:%S}Z"
    for state, billing, account in itertools.product(states, billings, accounts):
        query = f"state={state}&billing={billing}&account={account}"
        yield query
        yield query + week
    yield from ("reason=no_usage", "reason=written_off&account=acme")


def test_no_combination_of_filters_reads_much_more_than_it_shows(many_rows: None):
    costly = {}
    for query in combinations():
        chosen = read_filters(QueryDict(query), FILTERS)
        before = row_reads()
        page = request_page(chosen, None)
        reads = row_reads() - before
        if page.page.older:
            before = row_reads()
            request_page(chosen, Cursor.read({"after": page.page.older}))
            reads = max(reads, row_reads() - before)
        if reads > READS_MAX:
            costly[query] = reads
    assert not costly
