"""Filters of a list in the query string. A bad filter is a 400 page that names it, never "all".

    FILTERS = (Choice("state", _("Result"), choices), Id("account", _("Account")), Moment(...))
    chosen = read_filters(request.GET, FILTERS)
    if "state" in chosen.values: queryset = queryset.filter(result_state=chosen.values["state"])

Empty fields (a plain form sends them) are filters that were not set. Unknown and repeated names are
refused: a deep link that lost its meaning must not quietly show everything.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from typing import Any

from django.core.exceptions import BadRequest
from django.http import QueryDict
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _

PAGE_NAMES = frozenset({"after", "before", "poll", "seen"})  # positions and modes, no filters
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_SHOWN_CHARS_MAX = 200


class BadFilter(BadRequest):
    """A query-string parameter that this list does not understand. Answered with 400."""

    def __init__(self, name: str, value: str, why: str):
        super().__init__(f"{name}: {why}")
        self.name, self.value, self.why = name, value[:_SHOWN_CHARS_MAX], why


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: its name in the query string and its label on the page."""

    name: str
    label: str | Promise
    kind: str = field(default="text", init=False)

    def read(self, text: str) -> Any:
        """The value of a non-empty text. BadFilter when it is none."""
        raise NotImplementedError

    def show(self, value: Any) -> str:
        """The value in words, for the chip above the list."""
        return str(value)

    def widget_value(self, value: Any) -> str:
        """The value as its form field wants it."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Choice(Filter):
    """One of a fixed set: (value, label) pairs."""

    choices: Sequence[tuple[str, str | Promise]] = ()
    kind: str = field(default="choice", init=False)

    def read(self, text: str) -> str:
        if text not in dict(self.choices):
            names = ", ".join(value for value, _label in self.choices)
            raise BadFilter(self.name, text, _("must be one of: %(names)s") % {"names": names})
        return text

    def show(self, value: str) -> str:
        return str(dict(self.choices)[value])


@dataclass(frozen=True, slots=True)
class Id(Filter):
    """An id in the allowed alphabet."""

    kind: str = field(default="id", init=False)

    def read(self, text: str) -> str:
        if not _ID.fullmatch(text.strip()):
            raise BadFilter(self.name, text, _("an id has 1 to 128 of A-Z a-z 0-9 . _ : -"))
        return text.strip()


@dataclass(frozen=True, slots=True)
class Moment(Filter):
    """A point in time: a date, or a date and time, in the page's zone unless it names its offset.

    `end` makes a bare date mean the end of that day (bounds are half-open in UTC; console case 67).
    """

    end: bool = False
    kind: str = field(default="moment", init=False)

    def read(self, text: str) -> datetime:
        try:
            parsed = datetime.fromisoformat(text.strip())
        except ValueError:
            raise BadFilter(
                self.name, text, _("must be a date such as 2026-11-29 or 2026-11-29T14:00")
            ) from None
        if len(text.strip()) <= 10 and self.end:
            # the start of the next local day, on the calendar: some days have 23 or 25 hours
            day = datetime.fromordinal(min(parsed.toordinal() + 1, datetime.max.toordinal()))
            parsed = datetime.combine(day, time())
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=timezone.get_current_timezone())
        try:
            read = parsed.astimezone(UTC)
            timezone.localtime(read)  # the edge of the calendar has no local time
            return read
        except OverflowError:
            raise BadFilter(self.name, text, _("lies outside the calendar")) from None

    def show(self, value: datetime) -> str:
        shown = timezone.localtime(value)
        return f"{shown:%Y-%m-%d %H:%M} {shown.tzname()}"

    def widget_value(self, value: datetime) -> str:
        return f"{timezone.localtime(value):%Y-%m-%dT%H:%M}"


@dataclass(frozen=True, slots=True)
class Chip:
    """One set filter in words, with the query string that drops it."""

    label: str
    text: str
    without: str


@dataclass(frozen=True, slots=True)
class Field:
    """One filter as a form field."""

    filter: Filter
    value: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """The filters of one request: `values` holds only those that are set."""

    filters: Sequence[Filter]
    values: dict[str, Any]

    @property
    def is_filtered(self) -> bool:
        return bool(self.values)

    def query(self, *, without: Iterable[str] = (), **changes: str | None) -> str:
        """'?state=unknown&after=...': these filters with changes, or '' for none. Starts anew."""
        query = QueryDict(mutable=True)
        for one in self.filters:
            if one.name in self.values and one.name not in without:
                query[one.name] = _exact(one, self.values[one.name])
        for name, value in changes.items():
            if value is None:
                query.pop(name, None)
            else:
                query[name] = value
        return f"?{query.urlencode()}" if query else ""

    @property
    def chips(self) -> list[Chip]:
        return [
            Chip(
                str(one.label),
                one.show(self.values[one.name]),
                self.query(without=(one.name,)) or "?",
            )
            for one in self.filters
            if one.name in self.values
        ]

    @property
    def fields(self) -> list[Field]:
        """All filters as form fields."""
        return [
            Field(one, one.widget_value(self.values[one.name]) if one.name in self.values else "")
            for one in self.filters
        ]


def _exact(one: Filter, value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else one.widget_value(value)


def read_filters(query: QueryDict | Mapping[str, str], filters: Sequence[Filter]) -> Chosen:
    """Reads the set filters. BadFilter on an unknown or repeated name and on a bad value."""
    known = {one.name: one for one in filters}
    values: dict[str, Any] = {}
    for name in query:
        texts = query.getlist(name) if isinstance(query, QueryDict) else [query[name]]
        if name not in known and name not in PAGE_NAMES:
            raise BadFilter(name, texts[-1], _("this list has no filter of that name"))
        if len(texts) > 1:
            raise BadFilter(name, ", ".join(texts), _("is given more than once"))
        if name in known and texts[0].strip():
            values[name] = known[name].read(texts[0])
    return Chosen(filters, values)
