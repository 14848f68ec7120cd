"""When a message is tried again: the schedule, its jitter, and what Retry-After changes (F2)."""

from datetime import UTC, datetime

import pytest

from kernel.conf import conf, override
from kernel.delivery.schedule import asked_seconds, wait_seconds

NOW = datetime(2026, 10, 21, 7, 28, 0, tzinfo=UTC)


def wait(number: int, message_id: str = "ntf_1", **fields: float) -> float:
    return wait_seconds(message_id=message_id, number=number, **fields)


@pytest.mark.parametrize("number", range(1, 51))
def test_attempt_n_waits_for_its_own_place_in_the_schedule(number: int) -> None:
    plain = min(5 * 2 ** (number - 1), 3600)
    assert plain * 0.8 <= wait(number) <= plain * 1.2


def test_the_same_attempt_waits_the_same_and_others_do_not_come_together() -> None:
    assert wait(3) == wait(3)
    waits = {round(wait(1, f"ntf_{number}"), 3) for number in range(500)}
    assert len(waits) > 300, "500 that failed at once are spread"
    assert min(waits) < 4.2 and max(waits) > 5.8


def test_no_attempt_number_overflows() -> None:
    assert wait(10**6) <= conf.notification_retry_max_seconds * 1.2


@pytest.mark.parametrize(
    ("asked", "low", "high"), [(100, 100, 101), (0, 4, 5), (10**9, 3600, 3601)]
)
def test_what_the_receiver_asks_for_replaces_the_schedule_within_bounds(
    asked: int, low: float, high: float
) -> None:
    assert low <= wait(7, asked_seconds=asked) <= high


def test_a_receiver_that_says_at_once_does_not_use_up_the_attempts() -> None:
    with override(notification_retry_first_seconds=10):
        assert all(wait(number, asked_seconds=0) >= 8 for number in range(1, 9))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["0"], 0),
        (["-5"], None),
        (["-3"], None),
        (["1.5"], 2),
        (["120"], 120),
        (["9999999999"], 3600),
        (["Wed, 21 Oct 2026 07:29:00 GMT"], 60),
        (["Wed, 21 Oct 2015 07:28:00 GMT"], 0),
        (["Wednesday, 21-Oct-26 07:30:00 GMT"], 120),
        (["abc"], None),
        (["nan"], None),
        (["1e400"], None),
        ([" 10 "], 10),
        (["10", "20"], None),
        ([], None),
    ],
)
def test_retry_after_is_clamped_or_unclear(values: list[str], expected: int | None) -> None:
    assert asked_seconds(status=503, values=values, now=NOW) == expected


@pytest.mark.parametrize("status", [200, 302, 400, 404, 500, 502])
def test_only_some_answers_say_when_to_come_back(status: int) -> None:
    assert asked_seconds(status=status, values=["10"], now=NOW) is None
