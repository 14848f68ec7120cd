"""Long acts as the screens read them: the list, a frozen set in numbers, its items by number."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from console.filters import Choice, Chosen
from console.paging import CappedCount, Cursor, IdPage, capped_count, page_ids, rows_by_id
from console.queries.destinations import circuit_of
from console.queries.walks import walk
from console.statuses import status_of
from kernel import clock
from kernel.conf import conf
from kernel.models import DeadLetter, Destination, Operation, OperationItem
from kernel.operations.freezing import NONE, OTHERS
from kernel.states import OPERATION, DeadLetterState

STATES = tuple(state.name for state in OPERATION.states)
ITEM_STATES = ("planned", "done", "skipped", "failed")
FILTERS = (
    Choice("state", _("State"), [(one, status_of(f"operation_{one}").word) for one in STATES]),
)
ITEM_FILTERS = (
    Choice("item", _("Result"), [(one, status_of(f"item_{one}").word) for one in ITEM_STATES]),
)
BY_STATE, BY_AGE = "bz_operation_state", "bz_operation_age"
HEAVY = ("filter_text", "split_text", "error_text")
NEWCOMERS_CAP = 1_000
DOUBTFUL_OF_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class OperationPage:
    """One page of the list."""

    rows: Sequence[Operation]
    page: IdPage


@dataclass(frozen=True, slots=True)
class Share:
    """One destination's part of a frozen set; `destination_id` is '' for none of them."""

    destination_id: str
    count: int
    destination: Destination | None
    circuit: str  # second half of a status name, '' without a destination


@dataclass(frozen=True, slots=True)
class SetView:
    """A frozen set of dead letters before it is worked off.

    `doubtful`: how many of its newest DOUBTFUL_OF_ROWS may have arrived already.
    """

    shares: Sequence[Share]
    others: int  # items of destinations that the plan does not name
    oldest_at: datetime | None
    newest_at: datetime | None
    doubtful: int
    newcomers: CappedCount


@dataclass(frozen=True, slots=True)
class ItemPage:
    """One page of items by number; `after` continues, None at the end."""

    rows: Sequence[OperationItem]
    after: int | None


def operation_page(chosen: Chosen, cursor: Cursor | None) -> OperationPage:
    """Two queries. In one state the latest change comes first, else the latest start."""
    rows = Operation.objects.all()
    if "state" in chosen.values:
        branch = walk(rows.filter(state=chosen.values["state"]), BY_STATE)
        page = page_ids([branch], cursor=cursor)
    else:
        page = page_ids([walk(rows, BY_AGE)], cursor=cursor, order_by="created_at")
    found = rows_by_id(Operation.objects.defer(*HEAVY), page.ids)
    return OperationPage([row for row in found if isinstance(row, Operation)], page)


def set_view(row: Operation) -> SetView:
    """The plan in numbers. Five queries, whatever the size of the set."""
    split = split_of(row)
    others = split.pop(OTHERS, 0)
    shown = sorted(split.items(), key=lambda pair: (-pair[1], pair[0]))
    known = Destination.objects.in_bulk([name for name, _count in shown if name != NONE])
    ends = dict(
        OperationItem.objects.filter(
            operation_id=row.id, sequence__in=[1, row.item_count]
        ).values_list("sequence", "object_id")
    )
    moments = dict(
        DeadLetter.objects.filter(id__in=list(ends.values())).values_list("id", "created_at")
    )
    return SetView(
        shares=[_share(name, count, known.get(name)) for name, count in shown],
        others=others,
        oldest_at=moments.get(ends.get(1, "")),
        newest_at=moments.get(ends.get(row.item_count, "")),
        doubtful=_doubtful(row),
        newcomers=newcomers(row),
    )


def _share(name: str, count: int, row: Destination | None) -> Share:
    name = "" if name == NONE else name
    return Share(name, count, row, circuit_of(row, now=clock.now()) if row else "")


def split_of(row: Operation) -> dict[str, int]:
    """destination -> count, as the plan counted it."""
    try:
        value = json.loads(row.split_text or "{}")
    except ValueError:
        return {}
    return {str(name): int(count) for name, count in value.items()}


def filter_of(row: Operation) -> dict[str, Any]:
    """The plan's filter: name -> value, only what was set."""
    try:
        value = json.loads(row.filter_text or "{}")
    except ValueError:
        return {}
    return {name: one for name, one in value.items() if one not in ("", None)}


def _doubtful(row: Operation) -> int:
    newest = OperationItem.objects.filter(
        operation_id=row.id, sequence__gt=row.item_count - DOUBTFUL_OF_ROWS
    ).values_list("object_id", flat=True)
    ids = list(newest[:DOUBTFUL_OF_ROWS])
    return DeadLetter.objects.filter(id__in=ids, unknown_attempts__gt=0).count()


def newcomers(row: Operation) -> CappedCount:
    """Open dead letters of the same filter that came after the set was frozen. One query."""
    rows: QuerySet[DeadLetter] = DeadLetter.objects.filter(
        state=DeadLetterState.OPEN, created_at__gt=row.created_at
    )
    wanted = filter_of(row)
    for name, column in (
        ("fingerprint", "error_fingerprint"),
        ("destination_id", "destination_id"),
        ("account_id", "account_id"),
        ("channel", "channel"),
    ):
        if wanted.get(name):
            rows = rows.filter(**{column: wanted[name]})
    if wanted.get("before"):  # what ends in the past has no newcomers
        rows = rows.filter(created_at__lt=datetime.fromisoformat(str(wanted["before"])))
    return capped_count(rows, cap=NEWCOMERS_CAP)


def item_page(
    row: Operation, *, state: str = "", after: int = 0, rows: int | None = None
) -> ItemPage:
    """Items after that number. One query, served by an index."""
    limit = conf.list_page_rows if rows is None else rows
    found = OperationItem.objects.filter(operation_id=row.id, sequence__gt=after)
    if state:
        found = found.filter(state=state)
    items = list(found.order_by("sequence")[: limit + 1])
    more, items = len(items) > limit, items[:limit]
    return ItemPage(items, items[-1].sequence if more else None)
