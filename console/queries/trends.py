"""What the charts count: entries of a covering index, newest first, up to the count cap.

Buckets are whole hours or days of UTC (a local day is not a thing the database can group by).
Each query reads at most conf.count_cap index entries or LEDGER_ROWS_MAX rows, whatever the table.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection

from kernel import clock
from kernel.conf import conf
from kernel.models import LedgerRow
from kernel.states import Billing, Result

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LEDGER_ROWS_MAX = 2000
OUTCOMES = (Result.COMPLETE, Result.FAILED, Result.UNKNOWN, Result.CANCELLED)
_COUNTED = """
SELECT '{name}' AS name, bucket, COUNT(*) AS amount
FROM (SELECT SUBSTR(CAST(updated_at AS CHAR), 1, {chars}) AS bucket FROM bz_usage_requests
  WHERE {column} = '{name}' AND updated_at >= '{since}'
  ORDER BY updated_at DESC LIMIT {limit}) AS {name}_rows
GROUP BY bucket
"""


@dataclass(frozen=True, slots=True)
class Trend:
    """Sums by name over the starts of stretches of time, old to new.

    `is_cut`: the cap was reached; stretches before the first one were not counted.
    """

    step: timedelta
    starts: list[datetime]
    values: Mapping[str, list[int]]
    is_cut: bool = False


def outcomes(*, hours: int = 24) -> Trend:
    """Requests by the outcome they have and the hour it was last changed. One query."""
    return _trend("result_state", OUTCOMES, step=HOUR, count=hours)


def pending_by_day(*, days: int = 14) -> Trend:
    """Pending charges by the day they last changed. One query."""
    return _trend("billing_state", (Billing.PENDING,), step=DAY, count=days)


def spend(*, account_id: str) -> Trend:
    """What the newest LEDGER_ROWS_MAX ledger rows of an account add up to: by day, 30 at most.

    An account that fills them within two days is shown by hour. One query.
    """
    now = clock.now()
    rows = list(
        LedgerRow.objects.filter(account_id=account_id, created_at__gte=now - 30 * DAY)
        .order_by("-created_at", "-id")
        .values_list("created_at", "amount_nano")[: LEDGER_ROWS_MAX + 1]
    )
    is_cut, rows = len(rows) > LEDGER_ROWS_MAX, rows[:LEDGER_ROWS_MAX]
    first = rows[-1][0] if is_cut else now - 30 * DAY
    step = HOUR if now - first <= 2 * DAY else DAY
    starts = _starts(step, since=first, now=now)
    sums: Counter[datetime] = Counter()
    for at, nano in rows:
        sums[_floor(at, step)] += nano
    return _cut(step, starts, {"spend": sums}, first=first if is_cut else None)


def _trend(column: str, names: tuple[str, ...], *, step: timedelta, count: int) -> Trend:
    now = clock.now()
    starts = _starts(step, since=_floor(now, step) - (count - 1) * step, now=now)
    chars = 13 if step == HOUR else 10
    parts = [
        _COUNTED.format(
            name=name,
            column=column,
            chars=chars,
            since=f"{starts[0]:%Y-%m-%d %H:%M:%S}",
            limit=conf.count_cap,
        )
        for name in names
    ]
    with connection.cursor() as cursor:
        cursor.execute("\nUNION ALL\n".join(parts))
        found = cursor.fetchall()
    sums: dict[str, Counter[datetime]] = {name: Counter() for name in names}
    for name, bucket, amount in found:
        text = bucket if step == DAY else f"{bucket}:00"
        sums[name][datetime.fromisoformat(text).replace(tzinfo=UTC)] += int(amount)
    full = [counts for counts in sums.values() if counts.total() >= conf.count_cap]
    first = max((min(counts) for counts in full), default=None)
    return _cut(step, starts, sums, first=first)


def _cut(
    step: timedelta,
    starts: list[datetime],
    sums: Mapping[str, Counter[datetime]],
    *,
    first: datetime | None,
) -> Trend:
    """Leaves out what lies before `first`, where counting stopped; that stretch is a part."""
    if first is not None:
        starts = [one for one in starts if one >= _floor(first, step)]
    return Trend(
        step,
        starts,
        {name: [counts[one] for one in starts] for name, counts in sums.items()},
        is_cut=first is not None,
    )


def _floor(moment: datetime, step: timedelta) -> datetime:
    moment = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return moment if step == HOUR else moment.replace(hour=0)


def _starts(step: timedelta, *, since: datetime, now: datetime) -> list[datetime]:
    start, found = _floor(since, step), []
    while start <= now:
        found.append(start)
        start += step
    return found
