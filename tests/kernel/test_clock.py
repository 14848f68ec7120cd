"""Two clocks: the application's for display, the database's for liveness."""

from datetime import UTC, datetime, timedelta

from django.db import connection

from kernel import clock


def test_the_database_clock_is_utc_with_microseconds(kernel_db: None) -> None:
    times = [clock.db_now() for _ in range(20)]
    assert all(at.tzinfo is UTC for at in times)
    assert times == sorted(times)
    assert any(at.microsecond % 1000 for at in times)
    assert abs(times[-1] - clock.now()) < timedelta(seconds=5)


def test_leases_are_judged_by_the_servers_clock_not_by_ours(server_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET timestamp = 1000000000.5")
    try:
        assert clock.db_now() == datetime(2001, 9, 9, 1, 46, 40, 500_000, tzinfo=UTC)
    finally:
        connection.close()


def test_the_monotonic_clock_never_goes_back() -> None:
    times = [clock.monotonic() for _ in range(100)]
    assert times == sorted(times)
