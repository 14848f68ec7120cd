"""A bad filter is an error that names it, never the unfiltered list (console cases 10, 67, 68)."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.http import QueryDict
from django.utils import timezone

from console.filters import BadFilter, read_filters
from tests.console.urls import FILTERS


def read(query):
    return read_filters(QueryDict(query), FILTERS)


def test_set_filters_are_read_and_empty_fields_are_not_set():
    chosen = read("result=unknown&account=&since=")
    assert chosen.values == {"result": "unknown"}
    assert chosen.is_filtered
    assert not read("result=&account=").is_filtered


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("result=nope", "result"),
        ("result=Unknown", "result"),
        ("account=a%20b", "account"),
        ("account=" + "x" * 129, "account"),
        ("since=yesterday", "since"),
        ("since=2026-13-01", "since"),
        ("resutl=unknown", "resutl"),
        ("result=unknown&result=complete", "result"),
        ("account=acme&account=", "account"),
    ],
)
def test_a_bad_filter_is_refused_by_name(query, name):
    with pytest.raises(BadFilter) as caught:
        read(query)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("zone", "at"),
    [("Asia/Tokyo", "9999-12-31T23:59+00:00"), ("America/New_York", "0001-01-01T00:00+00:00")],
)
def test_a_time_that_the_readers_zone_cannot_show_is_refused(zone, at):
    with timezone.override(zone), pytest.raises(BadFilter):
        read(f"since={at.replace('+', '%2B')}")


def test_page_positions_are_no_filters():
    assert read("after=abc&poll=1").values == {}


def test_a_bare_end_date_includes_that_day():
    assert read("until=2026-11-29").values["until"] == datetime(2026, 11, 30, tzinfo=UTC)
    assert read("since=2026-11-29").values["since"] == datetime(2026, 11, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2026-03-29", 23),
        ("Europe/Berlin", "2026-10-25", 25),
        ("America/New_York", "2026-03-08", 23),
        ("Australia/Lord_Howe", "2026-04-05", 24.5),
        ("UTC", "2026-03-29", 24),
    ],
)
def test_a_local_day_has_its_true_length_in_utc(zone, day, hours):
    with timezone.override(ZoneInfo(zone)):
        values = read(f"since={day}&until={day}").values
    assert (values["until"] - values["since"]).total_seconds() == hours * 3600


def test_a_time_without_a_zone_is_one_of_the_readers_zone():
    with timezone.override(ZoneInfo("Asia/Kolkata")):  # +05:30
        values = read("since=2026-11-29T10:00").values
    assert values["since"] == datetime(2026, 11, 29, 4, 30, tzinfo=UTC)


def test_an_offset_in_the_text_wins_over_the_page_zone():
    with timezone.override(ZoneInfo("Asia/Tokyo")):
        values = read("since=2026-11-29T00:00%2B01:00").values
    assert values["since"] == datetime(2026, 11, 28, 23, tzinfo=UTC)


def test_links_keep_the_filters_and_drop_the_position():
    chosen = read("result=unknown&account=acme&after=abc")
    assert chosen.query() == "?result=unknown&account=acme"
    assert chosen.query(after="xyz") == "?result=unknown&account=acme&after=xyz"
    assert [chip.without for chip in chosen.chips] == ["?account=acme", "?result=unknown"]


def test_a_moment_survives_the_round_trip_through_a_link():
    chosen = read("since=2026-11-29T14:02:05.123456")
    again = read(chosen.query().removeprefix("?"))
    assert again.values == chosen.values


def test_a_bad_filter_answers_400_and_offers_the_list_without_it(signed_in):
    response = signed_in("viewer").get("/requests?result=nope&account=acme")
    assert response.status_code == 400
    assert 'href="/requests?account=acme"' in response.text
    assert "must be one of: unknown, complete" in response.text


def test_a_bad_filter_value_is_shown_escaped(signed_in):
    response = signed_in("viewer").get("/requests", {"result": "<script>\u202e"})
    assert response.status_code == 400
    assert "<script>\u202e" not in response.text
    assert "⟦U+202E⟧" in response.text
