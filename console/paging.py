"""Keyset paging: ids from a covering index, latest first; the cursor is in the query string.

    page = page_ids([Request.objects.filter(account_id=a)], cursor=Cursor.read(request.GET))
    rows = rows_by_id(Request.objects.all(), page.ids)

A page costs one query for the ids and one for the rows, whatever its number. No OFFSET, no COUNT.
Several querysets (one per state) are merged as a UNION ALL of limited id pages, never by
`state IN (...)`.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections
from django.db.models import Model, Q, QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.filters import BadFilter
from kernel.conf import conf
from kernel.errors import InvalidInput

AFTER, BEFORE = "after", "before"  # the query string's names
_CURSOR_CHARS_MAX = 300
# What a page may be ordered by: the head of that column, and the words below the list.
ORDERS: dict[str, tuple[str | Promise, str | Promise]] = {
    "updated_at": (gettext_lazy("Changed"), gettext_lazy("latest change first")),
    "created_at": (gettext_lazy("Created"), gettext_lazy("newest first")),
    "at": (gettext_lazy("When"), gettext_lazy("newest first")),
    "due_at": (gettext_lazy("Due"), gettext_lazy("latest due first")),
    "last_seen_at": (gettext_lazy("Last seen"), gettext_lazy("latest seen first")),
}


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position: the key of the last row seen (`older`) or of the first one (`newer`)."""

    moment: datetime
    id: str
    newer: bool = False

    def text(self) -> str:
        """Opaque text for a link; `read` accepts nothing else."""
        plain = f"1 {self.moment.astimezone(UTC).isoformat()} {self.id}"
        return base64.urlsafe_b64encode(plain.encode("ascii")).decode("ascii").rstrip("=")

    @classmethod
    def read(cls, query: Mapping[str, str]) -> "Cursor | None":
        """The cursor of a query string, None on the first page. BadFilter when it is not ours."""
        if AFTER in query and BEFORE in query:
            raise BadFilter(BEFORE, query[BEFORE], _("a page has one position, not two"))
        for name in (AFTER, BEFORE):
            if name in query:
                return cls._parse(name, query[name])
        return None

    @classmethod
    def _parse(cls, name: str, text: str) -> "Cursor":
        try:
            if len(text) > _CURSOR_CHARS_MAX:
                raise ValueError(text)
            plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            version, moment, row_id = plain.decode("ascii").split(" ")
            parsed = datetime.fromisoformat(moment)
            if version != "1" or parsed.tzinfo is None or not row_id:
                raise ValueError(text)
            parsed = parsed.astimezone(UTC)
        except (ValueError, OverflowError, binascii.Error):
            raise BadFilter(name, text, _("not a position in this list")) from None
        return cls(parsed, row_id, newer=name == BEFORE)


@dataclass(frozen=True, slots=True)
class IdPage:
    """The ids of one page, in order, and the cursors around it (None = nothing there)."""

    ids: list[Any]
    older: str | None
    newer: str | None
    order_by: str = "updated_at"  # a name of ORDERS; what the list says of its order


def page_ids(
    querysets: Sequence[QuerySet[Any]],
    *,
    cursor: Cursor | None,
    rows: int | None = None,
    order_by: str = "updated_at",
) -> IdPage:
    """One page of ids of the union of `querysets` (disjoint), latest first by (order_by, id).

    `rows` defaults to conf.list_page_rows. Each queryset's filter and order must be served by one
    index; only (order_by, id) is read.
    """
    limit = conf.list_page_rows if rows is None else rows
    if cursor is not None:
        _check_id(cursor, querysets[0].model)
    newer = cursor is not None and cursor.newer
    keys = _keys(querysets, cursor=cursor, order_by=order_by, newer=newer, limit=limit + 1)
    more, keys = len(keys) > limit, keys[:limit]
    if newer:
        keys.reverse()
    if not keys:
        return IdPage([], older=None, newer=None, order_by=order_by)
    has_newer = more if newer else cursor is not None
    has_older = newer or more
    return IdPage(
        ids=[row_id for _moment, row_id in keys],
        older=Cursor(*_text_key(keys[-1])).text() if has_older else None,
        newer=Cursor(*_text_key(keys[0])).text() if has_newer else None,
        order_by=order_by,
    )


def _check_id(cursor: Cursor, model: type[Model]) -> None:
    """A forged cursor may hold an id that this table's key cannot be."""
    name = BEFORE if cursor.newer else AFTER
    try:
        model._meta.pk.get_prep_value(model._meta.pk.to_python(cursor.id))
    except (ValueError, ValidationError, InvalidInput):
        raise BadFilter(name, cursor.text(), _("not a position in this list")) from None


def _text_key(key: tuple[datetime, Any]) -> tuple[datetime, str]:
    return key[0], str(key[1])


def _keys(
    querysets: Sequence[QuerySet[Any]],
    *,
    cursor: Cursor | None,
    order_by: str,
    newer: bool,
    limit: int,
) -> list[tuple[datetime, Any]]:
    order = (order_by, "pk") if newer else (f"-{order_by}", "-pk")
    branches = []
    for queryset in querysets:
        branch = queryset if cursor is None else queryset.filter(_beyond(cursor, order_by))
        branches.append(branch.order_by(*order).values_list(order_by, "pk")[:limit])
    if len(branches) == 1:
        return list(branches[0])
    if connections[branches[0].db].features.supports_slicing_ordering_in_compound:
        union = branches[0].union(*branches[1:], all=True)
        return list(union.order_by(*order)[:limit])
    return list(islice(merge(*branches, reverse=not newer), limit))


def _beyond(cursor: Cursor, order_by: str) -> Q:
    """`a <= x AND (a < x OR id < y)`: the form every engine reads as an index range."""
    edge, strict, by_id = ("gte", "gt", "gt") if cursor.newer else ("lte", "lt", "lt")
    return Q(**{f"{order_by}__{edge}": cursor.moment}) & (
        Q(**{f"{order_by}__{strict}": cursor.moment}) | Q(**{f"pk__{by_id}": cursor.id})
    )


def rows_by_id(queryset: QuerySet[Any], ids: Sequence[Any]) -> list[Model]:
    """The rows of one page in the page's order; a row that vanished meanwhile is left out."""
    found = queryset.in_bulk(list(ids))
    return [found[row_id] for row_id in ids if row_id in found]


@dataclass(frozen=True, slots=True)
class CappedCount:
    """A count that stopped at a cap: '42' or '10,000+'."""

    value: int
    capped: bool

    def __str__(self) -> str:
        return f"{self.value:,}{'+' if self.capped else ''}"


def capped_count(queryset: QuerySet[Any], *, cap: int | None = None) -> CappedCount:
    """Counts at most `cap` rows (default conf.count_cap) of a growing table."""
    limit = conf.count_cap if cap is None else cap
    value = queryset.order_by()[: limit + 1].count()
    return CappedCount(min(value, limit), capped=value > limit)
