"""Plans of long acts: a filter becomes a frozen set of objects, told before anything is done (F9).

The set is what matches now: every object is an item with a number. What comes later is not in it,
and what changes meanwhile is skipped when its turn comes. A set of one chunk is frozen at once, in
one transaction with its operation; a larger one in the background (`freezing`), so that no request
waits for it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from kernel import audit, clock, schema
from kernel.conf import conf
from kernel.errors import Conflict, InvalidInput
from kernel.ids import check_text, new_id
from kernel.models import Operation
from kernel.operations import freezing
from kernel.operations.filters import Filter, check_filter, matching
from kernel.operations.freezing import KIND, Chosen, Tally
from kernel.operations.sets import ARCHIVE, REPLAY, SOURCES
from kernel.states import OperationState
from kernel.transactions import insert_new_in_tx, reading, transaction

KINDS = (REPLAY, ARCHIVE)
REASON_CHARS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Preview:
    """What a filter matches now: at least `count` (exactly, unless `capped`)."""

    count: int
    capped: bool


def plan_replay(
    *,
    filter: Filter,
    actor: audit.Actor,
    reason: str,
    rate_per_second: int | None = None,
) -> Operation:
    """Freeze the set of a bulk replay: count, digest, split per destination (F9). Nothing is sent.

    The operation is `planned`, or `planning` when more than a chunk matches: then the set is
    frozen by who works operations off, and its count and digest come with `planned`.
    InvalidInput: `empty_filter`, `too_many` (over `operation_items_count_max`), reason, rate;
    Conflict `nothing_matches`; Unavailable without migration 0067 or 0069.
    """
    return _plan(REPLAY, filter, actor=actor, reason=reason, rate=rate_per_second)


def plan_archive(
    *,
    filter: Filter,
    actor: audit.Actor,
    reason: str,
    rate_per_second: int | None = None,
) -> Operation:
    """The same for archiving; the reason is written to each dead letter."""
    return _plan(ARCHIVE, filter, actor=actor, reason=reason, rate=rate_per_second)


def _plan(
    kind: str, wanted: Filter, *, actor: audit.Actor, reason: str, rate: int | None
) -> Operation:
    check_filter(wanted)
    return plan_set(kind=kind, filter_text=wanted.text(), actor=actor, reason=reason, rate=rate)


def plan_set(
    *,
    kind: str,
    filter_text: str,
    actor: audit.Actor,
    reason: str,
    rate: int | None = None,
    also: Callable[[Operation], None] | None = None,
) -> Operation:
    """Freeze the set that a filter of this kind finds; `also` runs in the plan's transaction.

    Errors as in `plan_replay`.
    """
    schema.require(schema.REPLAY)
    schema.require(schema.DELIVERY)
    text = check_text(reason, field="reason", chars_max=REASON_CHARS_MAX)
    per_second = check_rate(conf.operation_items_per_second_count if rate is None else rate)
    found = _first(kind=kind, filter_text=filter_text)
    if not found:
        raise Conflict(
            SOURCES[kind].nothing,
            code="nothing_matches",
            next_action="Look at the list with the same filter.",
        )
    if len(found) > conf.operation_items_count_max:
        raise InvalidInput(
            f"more than {conf.operation_items_count_max} objects match; narrow the filter",
            field="filter",
            code="too_many",
        )
    row = Operation(
        id=new_id("op"),
        kind=kind,
        filter_text=filter_text,
        state=OperationState.PLANNING,
        rate_per_second=per_second,
        reason=text,
        created_by=f"{actor.kind}:{actor.id}"[:160],
    )
    if len(found) > freezing.CHUNK_ROWS:
        return _insert(row=row, items=[], actor=actor, also=also)
    tally = Tally()
    tally.add(found)
    row.state, row.item_count, row.ceiling_id = OperationState.PLANNED, tally.count, found[-1][0]
    row.digest, row.split_text = tally.digest(), tally.split_text()
    return _insert(row=row, items=[row_id for row_id, _ in found], actor=actor, also=also)


def check_rate(rate: int) -> int:
    """Items per second. InvalidInput."""
    if not 1 <= rate <= 100_000:
        raise InvalidInput("rate lies between 1 and 100000", field="rate_per_second")
    return rate


@reading
def preview(*, filter: Filter) -> Preview:
    """How many open dead letters a filter matches now, counted up to `count_cap`."""
    schema.require(schema.DELIVERY)
    check_filter(filter)
    found = len(matching(filter).values_list("id", flat=True)[: conf.count_cap + 1])
    return Preview(min(found, conf.count_cap), found > conf.count_cap)


@reading
def _first(*, kind: str, filter_text: str) -> list[Chosen]:
    """The oldest that match: one more than a chunk says that there are more."""
    limit = freezing.CHUNK_ROWS + 1
    found = SOURCES[kind].after(filter_text, None, until=clock.db_now(), limit=limit)
    return [(row_id, group) for _, row_id, group in found]


@transaction
def _insert(
    *,
    row: Operation,
    items: list[str],
    actor: audit.Actor,
    also: Callable[[Operation], None] | None,
) -> Operation:
    """The operation, with the items of a set that is whole."""
    row.created_at = row.updated_at = clock.db_now()
    insert_new_in_tx(row)
    freezing.insert_items_in_tx(operation_id=row.id, first=1, ids=items, at=row.created_at)
    if also is not None:
        also(row)
    told = {"items": row.item_count, "digest": row.digest} if row.item_count else {}
    audit.append_in_tx(
        actor=actor,
        action="operation.plan",
        kind=KIND,
        object_id=row.id,
        after={"kind": row.kind, "filter": json.loads(row.filter_text), **told},
        reason=row.reason,
    )
    return row
