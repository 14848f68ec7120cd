"""Dead letters as the screens read them: groups by what went wrong, and the plain list."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import QuerySet
from django.db.models.functions import Substr
from django.utils.translation import gettext_lazy as _

from console.filters import Choice, Chosen, Id, Moment
from console.paging import CappedCount, Cursor, IdPage, capped_count, page_ids, rows_by_id
from console.queries.walks import walk
from console.statuses import status_of
from kernel.models import DeadLetter, DeadLetterGroup
from kernel.states import DEAD_LETTER

STATES = tuple(state.name for state in DEAD_LETTER.states)
FILTERS = (
    Choice("state", _("State"), [(one, status_of(f"letter_{one}").word) for one in STATES]),
    Id("group", _("Group")),
    Id("destination", _("Destination")),
    Id("account", _("Account")),
    Moment("since", _("From")),
    Moment("until", _("To"), end=True),
)
BY_STATE, BY_GROUP_STATE = "bz_dlq_state", "bz_dlq_group_state"
# Of a filter: the index of its rows, and the one of those in one state.
INDEXES = {
    "group": ("bz_dlq_group", BY_GROUP_STATE),
    "account": ("bz_dlq_account", "bz_dlq_account_state"),
    "destination": ("bz_dlq_destination", "bz_dlq_destination_state"),
}
SHOWN = (
    *("id", "account_id", "channel", "recipient", "state", "created_at"),
    *("destination_id", "event", "unknown_attempts"),
)
ERROR_HEAD_CHARS = 300
NEWS_ROWS_MAX = 100
# Possible duplicates are counted among the newest open ones of a group: it may be a million.
DOUBTFUL_OF_ROWS = 200

_DOUBTFUL = """
SELECT %s AS fingerprint, COUNT(*) AS amount FROM (
  SELECT unknown_attempts FROM bz_delivery_dlq {walk}
  WHERE error_fingerprint = %s AND state = 'open'
  ORDER BY created_at DESC, id DESC LIMIT {rows}) AS newest_{index}
WHERE unknown_attempts > 0
"""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group; of its newest `looked_at` open ones, `doubtful` may have arrived already."""

    row: DeadLetterGroup
    doubtful: int
    looked_at: int


@dataclass(frozen=True, slots=True)
class GroupPage:
    """One page of groups, latest seen first."""

    rows: Sequence[GroupRow]
    page: IdPage


@dataclass(frozen=True, slots=True)
class LetterPage:
    """One page of the list; each row has `error_head`."""

    rows: Sequence[Any]
    page: IdPage


def group_page(cursor: Cursor | None, *, only_open: bool) -> GroupPage:
    """Three queries, whatever the number of dead letters."""
    groups = DeadLetterGroup.objects.all()
    if only_open:
        groups = groups.filter(open_count__gt=0)
    page = page_ids([groups], cursor=cursor, order_by="last_seen_at")
    found = [
        row
        for row in rows_by_id(DeadLetterGroup.objects.all(), page.ids)
        if isinstance(row, DeadLetterGroup)
    ]
    doubtful = doubtful_counts([row.fingerprint for row in found if row.open_count])
    rows = [
        GroupRow(row, doubtful.get(row.fingerprint, 0), min(row.open_count, DOUBTFUL_OF_ROWS))
        for row in found
    ]
    return GroupPage(rows, page)


def doubtful_counts(fingerprints: Sequence[str]) -> dict[str, int]:
    """Those with an attempt of unknown outcome among the newest open ones of each. One query."""
    if not fingerprints:
        return {}
    walk_text = f"FORCE INDEX ({BY_GROUP_STATE})" if connection.vendor == "mysql" else ""
    parts = [
        _DOUBTFUL.format(rows=DOUBTFUL_OF_ROWS, index=index, walk=walk_text)
        for index in range(len(fingerprints))
    ]
    names = [name for one in fingerprints for name in (one, one)]
    with connection.cursor() as cursor:
        cursor.execute("UNION ALL".join(f"{part}" for part in parts), names)
        return {str(name): int(amount) for name, amount in cursor.fetchall()}


def letter_page(chosen: Chosen, cursor: Cursor | None) -> LetterPage:
    """Two queries whatever the page and the size of the table."""
    page = page_ids(_branches(chosen), cursor=cursor, order_by="created_at")
    heads = DeadLetter.objects.only(*SHOWN).annotate(
        error_head=Substr("error_text", 1, ERROR_HEAD_CHARS)
    )
    return LetterPage(rows_by_id(heads, page.ids), page)


def sample_of(fingerprint: str) -> str:
    """The beginning of an error text of a group, '' for none. One query."""
    head = Substr("sample_text", 1, ERROR_HEAD_CHARS)
    rows = DeadLetterGroup.objects.filter(fingerprint=fingerprint).annotate(head=head)
    return str(rows.values_list("head", flat=True).first() or "")


def came_since(chosen: Chosen, moment: datetime) -> CappedCount:
    """How many of this list came after `moment`, up to NEWS_ROWS_MAX. A query per branch."""
    found = [
        capped_count(branch.filter(created_at__gt=moment), cap=NEWS_ROWS_MAX)
        for branch in _branches(chosen)
    ]
    value = sum(one.value for one in found)
    is_capped = value > NEWS_ROWS_MAX or any(one.capped for one in found)
    return CappedCount(min(value, NEWS_ROWS_MAX), is_capped)


def _branches(chosen: Chosen) -> list[QuerySet[DeadLetter]]:
    """Disjoint querysets, each of which walks one index."""
    values = chosen.values
    rows = DeadLetter.objects.all()
    for name, column in (
        ("group", "error_fingerprint"),
        ("destination", "destination_id"),
        ("account", "account_id"),
        ("since", "created_at__gte"),
        ("until", "created_at__lt"),
    ):
        if name in values:
            rows = rows.filter(**{column: values[name]})
    states = [values["state"]] if "state" in values else STATES
    for name, (index, index_of_state) in INDEXES.items():
        if name in values and "state" in values:
            return [walk(rows.filter(state=values["state"]), index_of_state)]
        if name in values:
            return [walk(rows, index)]
    return [walk(rows.filter(state=one), BY_STATE) for one in states]
