"""Which open dead letters a plan is about: the filter in words, checked, and as a query (F9)."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from django.db.models import QuerySet

from kernel.errors import InvalidInput
from kernel.ids import check_id
from kernel.models import DeadLetter
from kernel.states import DeadLetterState

IDS = ("fingerprint", "destination_id", "account_id", "channel")
TIMES = ("since", "before")

Position = tuple[datetime, str]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which open dead letters. What is empty is not asked; times are inclusive, exclusive."""

    fingerprint: str = ""
    destination_id: str = ""
    account_id: str = ""
    channel: str = ""
    since: datetime | None = None
    before: datetime | None = None

    def text(self) -> str:
        """The filter as JSON, without what is not asked."""
        asked = {name: value for name, value in asdict(self).items() if value}
        return json.dumps(asked, sort_keys=True, default=_time_text)


def filter_of(text: str) -> Filter:
    """The filter that `Filter.text` wrote down."""
    asked = json.loads(text)
    times = {name: datetime.fromisoformat(asked[name]) for name in TIMES if name in asked}
    return Filter(**{**asked, **times})


def check_filter(wanted: Filter) -> None:
    """InvalidInput: `empty_filter` for one that asks nothing, else the field that is wrong."""
    for name in IDS:
        if value := getattr(wanted, name):
            check_id(value, field=name)
    for name in TIMES:
        value = getattr(wanted, name)
        if value is not None and value.tzinfo is None:
            raise InvalidInput("a time needs its offset", field=name)
    if wanted == Filter():
        raise InvalidInput(
            "say which dead letters: an error group, a destination, an account or a time",
            field="filter",
            code="empty_filter",
        )


def matching(wanted: Filter) -> "QuerySet[DeadLetter]":
    """The open ones, in no order yet; (created_at, id) is the order of every index."""
    rows = DeadLetter.objects.filter(state=DeadLetterState.OPEN)
    if wanted.fingerprint:
        rows = rows.filter(error_fingerprint=wanted.fingerprint)
    for name in ("destination_id", "account_id", "channel"):
        if value := getattr(wanted, name):
            rows = rows.filter(**{name: value})
    if wanted.since:
        rows = rows.filter(created_at__gte=wanted.since)
    if wanted.before:
        rows = rows.filter(created_at__lt=wanted.before)
    return rows


def _time_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat()
