"""Where the objects of a set come from: one source per kind of operation (F9).

A source knows its rows by age: (time, id) is the order of the set, and a place to go on from.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet

from kernel.errors import InvalidInput
from kernel.ids import check_id
from kernel.models import AuditRow, DeadLetter, Request
from kernel.operations.filters import Position, filter_of, matching

REPLAY, ARCHIVE = "dead_letter_replay", "dead_letter_archive"
EXPORT_AUDIT, EXPORT_REQUESTS = "export_audit", "export_requests"
ACTOR_CHARS_MAX, ACTIONS_MAX, SUBJECT_CHARS_MAX = 160, 100, 160

Found = tuple[datetime, str, str]  # (time, id, what the split counts it under)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which acts. What is empty is not asked; times are inclusive, exclusive."""

    subject: str = ""
    actor_id: str = ""
    actions: tuple[str, ...] = ()
    since: datetime | None = None
    before: datetime | None = None

    def check(self) -> None:
        """InvalidInput names the field that is wrong."""
        if self.subject:
            check_id(self.subject, field="subject", chars_max=SUBJECT_CHARS_MAX)
        if len(self.actor_id) > ACTOR_CHARS_MAX:
            raise InvalidInput("an actor's id has at most 160 characters", field="actor_id")
        if len(self.actions) > ACTIONS_MAX:
            raise InvalidInput(f"at most {ACTIONS_MAX} kinds of act", field="actions")
        for action in self.actions:
            check_id(action, field="actions")
        _check_times(self.since, self.before)

    def rows(self) -> "QuerySet[AuditRow]":
        """The acts that match, in no order yet."""
        rows = AuditRow.objects.all()
        if self.subject:
            rows = rows.filter(subject=self.subject)
        if self.actor_id:
            rows = rows.filter(actor_id=self.actor_id)
        if len(self.actions) == 1:
            rows = rows.filter(action=self.actions[0])
        elif self.actions:
            rows = rows.filter(action__in=self.actions)
        return _within(rows, "at", self.since, self.before)


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Which model requests, by when they were admitted."""

    account_id: str = ""
    result_state: str = ""
    billing_state: str = ""
    since: datetime | None = None
    before: datetime | None = None

    def check(self) -> None:
        """InvalidInput names the field that is wrong."""
        for name in ("account_id", "result_state", "billing_state"):
            if value := getattr(self, name):
                check_id(value, field=name)
        _check_times(self.since, self.before)

    def rows(self) -> "QuerySet[Request]":
        """The requests that match, in no order yet."""
        rows = Request.objects.all()
        for name in ("account_id", "result_state", "billing_state"):
            if value := getattr(self, name):
                rows = rows.filter(**{name: value})
        return _within(rows, "admitted_at", self.since, self.before)


ExportFilter = AuditFilter | RequestFilter


@dataclass(frozen=True, slots=True)
class Source:
    """The rows of one kind of set; `rows` reads the text of its filter."""

    rows: Callable[[str], "QuerySet[Any]"]
    moment: str  # the column of their age
    group: str  # the column the split counts by
    nothing: str  # what is said when none matches
    is_by_id: bool = False  # ids are by age, and no index is by the moment

    def after(
        self, text: str, place: Position | None, *, until: datetime, limit: int
    ) -> list[Found]:
        """The next ones by age after a place; none is younger than `until`."""
        rows = self.rows(text).filter(**{f"{self.moment}__lte": until})
        # The index alone, then the rows by id: else each chunk would sort all that are left.
        places: list[Position] = []
        for part in self._parts(rows, place):
            places += part.values_list(self.moment, "id")[: limit - len(places)]
            if len(places) == limit:
                break
        known = self.known([row_id for _, row_id in places])
        return [(at, row_id, known[row_id][1]) for at, row_id in places if row_id in known]

    def _parts(self, rows: "QuerySet[Any]", place: Position | None) -> "list[QuerySet[Any]]":
        """What comes after a place, in order: two single ranges of an index.

        As one condition, a chunk would read again every row of the same time: a million acts of one
        moment would never end. (With a filter MariaDB may still do so, from the index alone.)
        """
        if self.is_by_id:
            rows = rows.order_by("id")
            return [rows if place is None else rows.filter(id__gt=place[1])]
        ordered = rows.order_by(self.moment, "id")
        if place is None:
            return [ordered]
        at, row_id = place
        # Not `= at`: MariaDB then reads the whole time from its front, or the table by its ids.
        same_time = {f"{self.moment}__gte": at, f"{self.moment}__lte": at, "id__gt": row_id}
        return [ordered.filter(**same_time), ordered.filter(**{f"{self.moment}__gt": at})]

    def known(self, ids: Sequence[str]) -> dict[str, tuple[datetime, str]]:
        """(time, group) of those that still exist."""
        found = self.rows("").model._default_manager.filter(id__in=list(ids))
        return {
            row_id: (at, group)
            for row_id, at, group in found.values_list("id", self.moment, self.group)
        }


LETTERS = Source(
    rows=lambda text: matching(filter_of(text)) if text else DeadLetter.objects.all(),
    moment="created_at",
    group="destination_id",
    nothing="No open dead letter matches.",
)
SOURCES = {
    REPLAY: LETTERS,
    ARCHIVE: LETTERS,
    EXPORT_AUDIT: Source(
        rows=lambda text: audit_filter_of(text).rows(),
        moment="at",
        group="action",
        nothing="No act matches.",
    ),
    EXPORT_REQUESTS: Source(
        rows=lambda text: request_filter_of(text).rows(),
        moment="admitted_at",
        group="result_state",
        nothing="No request matches.",
        is_by_id=True,
    ),
}


def text_of(wanted: ExportFilter) -> str:
    """The filter as JSON, without what is not asked."""
    asked = {name: value for name, value in asdict(wanted).items() if value}
    return json.dumps(asked, sort_keys=True, default=lambda at: at.astimezone(UTC).isoformat())


def audit_filter_of(text: str) -> AuditFilter:
    """The filter that `text_of` wrote down; '' asks nothing."""
    asked = _asked(text)
    return AuditFilter(**(asked | {"actions": tuple(asked.get("actions", ()))}))


def request_filter_of(text: str) -> RequestFilter:
    """The filter that `text_of` wrote down; '' asks nothing."""
    return RequestFilter(**_asked(text))


def _asked(text: str) -> dict[str, Any]:
    asked = json.loads(text or "{}")
    return {
        name: datetime.fromisoformat(value) if name in ("since", "before") else value
        for name, value in asked.items()
    }


def _check_times(since: datetime | None, before: datetime | None) -> None:
    for name, value in (("since", since), ("before", before)):
        if value is not None and value.tzinfo is None:
            raise InvalidInput("a time needs its offset", field=name)


def _within(
    rows: "QuerySet[Any]", column: str, since: datetime | None, before: datetime | None
) -> "QuerySet[Any]":
    if since:
        rows = rows.filter(**{f"{column}__gte": since})
    if before:
        rows = rows.filter(**{f"{column}__lt": before})
    return rows
