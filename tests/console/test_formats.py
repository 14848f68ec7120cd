"""Numbers for people are short and exact (A13; usage case G64)."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from console.formats import absolute_text, ago_text, bytes_text, duration_text, money

NOW = datetime(2026, 11, 29, 14, 2, 5, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "$0.00"),
        (1, "$0.000000001"),
        (24_400, "$0.0000244"),
        (5_615_000, "$0.005615"),
        (10_000_000, "$0.01"),
        (1_204_500_000_000, "$1,204.50"),
        (-1_500_000_000, "−$1.50"),
        (2**63 - 1, "$9,223,372,036.854775807"),
    ],
)
def test_money_is_exact_and_never_rounded(nano, text):
    assert money(nano).text == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0004, "0.4 ms"),
        (0.0089, "9 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (1.884, "1.88 s"),
        (41.26, "41.3 s"),
        (59.96, "1 min 00 s"),
        (131, "2 min 11 s"),
        (11_520, "3 h 12 min"),
        (99_999, "1 d 3 h"),
        (-2, "−2.00 s"),
    ],
)
def test_a_duration_has_one_or_two_units(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("age", "text"),
    [(0, "just now"), (12, "12 s ago"), (190, "3 min ago"), (7300, "2 h ago"), (-30, "in 30 s")],
)
def test_an_age_has_one_unit(age, text):
    assert ago_text(NOW - timedelta(seconds=age), now=NOW) == text


def test_old_ages_are_days():
    assert ago_text(NOW - timedelta(days=1200), now=NOW) == "1,200 d ago"


def test_an_absolute_time_always_names_its_zone():
    assert absolute_text(NOW, now=NOW) == "14:02:05 UTC"
    assert absolute_text(NOW - timedelta(days=2), now=NOW) == "2026-11-27 14:02:05 UTC"
    assert absolute_text(NOW, now=NOW, precise=True) == "2026-11-29 14:02:05.123 UTC"


def test_a_page_has_one_zone():
    with timezone.override(ZoneInfo("Asia/Kathmandu")):
        assert absolute_text(NOW, now=NOW) == "19:47:05 +0545"


def test_the_date_is_shown_when_the_local_day_differs():
    before_midnight = datetime(2026, 11, 29, 23, 59, tzinfo=UTC)
    after_midnight = before_midnight + timedelta(minutes=2)
    assert absolute_text(before_midnight, now=after_midnight) == "2026-11-29 23:59:00 UTC"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1229, "1.2 KiB"), (1024 * 1024 - 1, "1.0 MiB")],
)
def test_sizes_have_binary_units(size, text):
    assert bytes_text(size) == text
