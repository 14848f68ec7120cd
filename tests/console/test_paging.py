"""Keyset pages: every row once, whatever is inserted, at a constant cost (console cases 1, 5)."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from django.test.utils import CaptureQueriesContext

from console.filters import BadFilter
from console.paging import Cursor, IdPage, capped_count, page_ids, rows_by_id
from kernel.ids import new_id
from kernel.models import Request

START = datetime(2026, 11, 29, tzinfo=UTC)


def make(count, *, state="complete", account="acme", at=START, same_time=1):
    rows = [
        Request(
            id=new_id("req"),
            account_id=account,
            operation_id=new_id("op"),
            service_id="demo",
            service_version=1,
            path="/v1",
            content_sha256="0" * 64,
            result_state=state,
            multiplier_millionths=1_000_000,
            admitted_at=at,
            updated_at=at + timedelta(seconds=number // same_time),
        )
        for number in range(count)
    ]
    Request.objects.bulk_create(rows)
    return rows


def walk(querysets, rows=7):
    """All pages forward; returns their ids and the cursors used."""
    pages, cursor = [], None
    while True:
        page = page_ids(querysets(), cursor=cursor, rows=rows)
        pages.append(page)
        if page.older is None:
            return pages
        cursor = Cursor.read({"after": page.older})


@pytest.fixture
def rows(db):
    return make(45, same_time=4)  # four rows share each moment: the id breaks the tie


def newest_first(rows):
    return [row.id for row in sorted(rows, key=lambda row: (row.updated_at, row.id), reverse=True)]


def test_every_row_is_on_exactly_one_page(rows):
    pages = walk(lambda: [Request.objects.all()])
    assert [row_id for page in pages for row_id in page.ids] == newest_first(rows)
    assert [len(page.ids) for page in pages] == [7] * 6 + [3]


def test_walking_back_shows_the_same_pages(rows):
    pages = walk(lambda: [Request.objects.all()])
    for index in range(len(pages) - 1, 0, -1):
        cursor = Cursor.read({"before": pages[index].newer})
        assert page_ids([Request.objects.all()], cursor=cursor, rows=7).ids == pages[index - 1].ids


def test_the_first_page_has_nothing_newer_and_the_last_nothing_older(rows):
    pages = walk(lambda: [Request.objects.all()])
    assert pages[0].newer is None and pages[0].older is not None
    assert pages[-1].older is None and pages[-1].newer is not None


def test_a_new_row_on_top_moves_nothing_on_later_pages(rows):
    first = page_ids([Request.objects.all()], cursor=None, rows=7)
    make(3, at=START + timedelta(days=1))
    second = page_ids([Request.objects.all()], cursor=Cursor.read({"after": first.older}), rows=7)
    assert second.ids == newest_first(rows)[7:14]


def test_several_states_are_merged_in_order(rows):
    others = make(20, state="unknown", same_time=3) + make(9, state="failed")
    states = ("complete", "unknown", "failed")

    def querysets():
        return [Request.objects.filter(result_state=state) for state in states]

    pages = walk(querysets)
    assert [row_id for page in pages for row_id in page.ids] == newest_first(rows + others)


def test_a_page_costs_two_queries_wherever_it_is(rows, connection_queries):
    first = page_ids([Request.objects.all()], cursor=None, rows=7)
    cursor = Cursor.read({"after": first.older})
    with connection_queries() as queries:
        page = page_ids([Request.objects.all()], cursor=cursor, rows=7)
        found = rows_by_id(Request.objects.all(), page.ids)
    assert [row.id for row in found] == page.ids
    assert len(queries) == 2
    assert "OFFSET" not in queries[0]["sql"] and "COUNT" not in queries[0]["sql"]


@pytest.fixture
def connection_queries(db):
    from django.db import connection

    return lambda: CaptureQueriesContext(connection)


def test_an_empty_list_has_one_empty_page(db):
    page = page_ids([Request.objects.all()], cursor=None)
    assert page == IdPage([], older=None, newer=None)


def test_a_row_that_vanished_is_left_out(rows):
    page = page_ids([Request.objects.all()], cursor=None, rows=7)
    Request.objects.filter(id=page.ids[3]).delete()
    assert [row.id for row in rows_by_id(Request.objects.all(), page.ids)] == [
        row_id for row_id in page.ids if row_id != page.ids[3]
    ]


def encode(text):
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!!!",
        "é",
        "x" * 400,
        encode("1 2026-11-29T00:00:00 req_1"),
        encode("2 2026-11-29T00:00:00+00:00 req_1"),
        encode("1 never req_1"),
        encode("1 2026-11-29T00:00:00+00:00 "),
        encode("1 2026-11-29T00:00:00+00:00 a b"),
        encode("1 2026-11-29T00:00:00+00:00 caf\u00e9"),
    ],
)
def test_a_forged_position_is_a_bad_filter(text):
    with pytest.raises(BadFilter):
        Cursor.read({"after": text})


def test_a_position_with_an_impossible_id_is_a_bad_filter(db):
    cursor = Cursor(START, "a;b")
    with pytest.raises(BadFilter):
        page_ids([Request.objects.all()], cursor=cursor)


def test_two_positions_at_once_are_refused():
    text = Cursor(START, "req_1").text()
    with pytest.raises(BadFilter):
        Cursor.read({"after": text, "before": text})


def test_a_count_stops_at_its_cap(rows):
    assert str(capped_count(Request.objects.all(), cap=100)) == "45"
    assert str(capped_count(Request.objects.all(), cap=45)) == "45"
    assert str(capped_count(Request.objects.all(), cap=44)) == "44+"


@pytest.mark.parametrize("moment", ["0001-01-01T00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_position_outside_the_calendar_is_none(moment):
    text = base64.urlsafe_b64encode(f"1 {moment} x".encode()).decode().rstrip("=")
    with pytest.raises(BadFilter):
        Cursor.read({"after": text})
