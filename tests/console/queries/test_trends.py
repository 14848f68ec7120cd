"""Charts: what they count, up to which cap, and the table beside the picture (L; case 4, 67)."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.charts import BAR_HEIGHT, Chart, Series
from console.formats import count_text
from console.queries import trends
from console.queries.trends import DAY, HOUR
from console.templatetags.parts import chart as chart_tag
from console.views.trends import outcomes_chart, spend_chart
from kernel import clock
from kernel.conf import override
from kernel.models import LedgerRow, Request
from tests.support import console_data, lives


@pytest.fixture
def acme(db):
    lives.open_account()
    lives.add_service()


def lost(count):
    """Requests with an unknown outcome; their ids."""
    fences = [lives.dispatched(f"lost-{n}") for n in range(count)]
    for fence in fences:
        console_data.lose(fence)
    return [fence.request_id for fence in fences]


def test_outcomes_are_counted_by_the_hour_of_utc(acme):
    ids = lost(3)
    now = clock.now()
    this_hour = now.replace(minute=0, second=0, microsecond=0)
    Request.objects.filter(id=ids[0]).update(updated_at=this_hour - timedelta(microseconds=1))
    Request.objects.filter(id=ids[1]).update(updated_at=now - 30 * HOUR)  # before the first hour
    trend = trends.outcomes()
    assert len(trend.starts) == 24 and trend.starts[-1] >= this_hour - HOUR
    assert sum(trend.values["unknown"]) == 2
    assert trend.values["unknown"][trend.starts.index(this_hour - HOUR)] == 1
    assert not trend.is_cut


def test_a_cut_count_shows_only_what_was_counted_and_says_so(acme, monkeypatch):
    lost(4)
    with override(count_cap=100):  # the least it may be
        assert not trends.outcomes().is_cut
    monkeypatch.setattr(trends, "conf", SimpleNamespace(count_cap=2))
    trend = trends.outcomes()
    assert trend.is_cut and sum(trend.values["unknown"]) == 2
    assert "Only the newest" in outcomes_chart().note


def test_spend_is_the_sum_of_the_ledger_by_day_of_utc(acme):
    now = clock.now()
    for number, (days, nano) in enumerate([(0, 5), (0, 7), (3, 11), (40, 1000)]):
        LedgerRow.objects.create(
            id=f"led_{number}",
            account_id="acme",
            request_id=f"req_{number}",
            kind="charge",
            amount_nano=nano,
            reference_nano=nano,
            multiplier_millionths=1_000_000,
            lines_text="[]",
            created_at=now - days * DAY,
        )
    trend = trends.spend(account_id="acme")
    assert trend.step == DAY and sum(trend.values["spend"]) == 23
    assert (trend.values["spend"][-1], trend.values["spend"][-4]) == (12, 11)
    shown = spend_chart("acme")
    assert shown.rows[0][1] == ["$0.000000012"] and len(shown.rows) == 2


def test_a_chart_reads_entries_of_an_index_and_one_query(acme):
    lost(1)
    with CaptureQueriesContext(connection) as queries:
        trends.outcomes()
    (query,) = queries.captured_queries
    with connection.cursor() as cursor:
        cursor.execute(
            f"EXPLAIN QUERY PLAN {query['sql']}" if is_sqlite() else "EXPLAIN " + query["sql"]
        )
        plan = " ".join(str(row) for row in cursor.fetchall())
    assert "bz_usage_req_state" in plan
    assert "SCAN bz_usage_requests" not in plan


def is_sqlite():
    return connection.vendor == "sqlite"


def test_bars_stand_on_each_other_and_the_highest_fills_the_picture():
    shown = Chart(
        "Title",
        "Note.",
        ["old", "new"],
        [Series("good", "ok", [3, 0]), Series("bad", "danger", [1, 2])],
        count_text,
    )
    first, second, third = shown.bars
    assert (float(first.y), float(first.height)) == (BAR_HEIGHT * 0.25, BAR_HEIGHT * 0.75)
    assert (float(second.y), second.title) == (0.0, "old: bad 1")
    assert float(third.y) == BAR_HEIGHT / 2
    assert shown.label == "Title. good 3, bad 3." and shown.top == "4"
    assert shown.rows == [("new", ["0", "2"]), ("old", ["3", "1"])]
    assert chart_tag(shown, "here")["name"] == "here"
