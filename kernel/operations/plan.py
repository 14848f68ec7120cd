"""Plans of long acts: a filter becomes a frozen set of objects, told before anything is done (F9).

The set is what matches now: every object is an item with a number. What comes later is not in it,
and what changes meanwhile is skipped when its turn comes. Items are written in chunks; the
operation itself comes last, so that a plan is whole or not there.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from django.db.models import Q, QuerySet

from kernel import audit, clock, schema
from kernel.conf import conf
from kernel.errors import Conflict, InvalidInput
from kernel.ids import check_id, check_text, new_id
from kernel.models import DeadLetter, Operation, OperationItem
from kernel.states import DeadLetterState, OperationState
from kernel.transactions import insert_new_in_tx, reading, transaction

KIND = "operation"
REPLAY, ARCHIVE = "dead_letter_replay", "dead_letter_archive"
KINDS = (REPLAY, ARCHIVE)
CHUNK_ROWS = 1000
REASON_CHARS_MAX = 1000
SPLIT_MAX = 50  # destinations that are named; the others are counted together
OTHERS, NONE = "(others)", "(none)"

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
    schema.require(schema.REPLAY)
    schema.require(schema.DELIVERY)
    check_filter(wanted)
    text = check_text(reason, field="reason", chars_max=REASON_CHARS_MAX)
    per_second = check_rate(conf.operation_items_per_second_count if rate is None else rate)
    operation_id, total = new_id("op"), 0
    ceiling = _ceiling(wanted=wanted)
    digest, split = hashlib.sha256(), Counter[str]()
    for chunk in _chunks(wanted, ceiling) if ceiling else ():
        if total + len(chunk) > conf.operation_items_count_max:
            _drop(operation_id=operation_id)
            raise InvalidInput(
                f"more than {conf.operation_items_count_max} objects match; narrow the filter",
                field="filter",
                code="too_many",
            )
        ids = [row_id for row_id, _ in chunk]
        _freeze(operation_id=operation_id, first=total + 1, ids=ids)
        total += len(ids)
        digest.update("".join(f"{row_id}\n" for row_id in ids).encode())
        split.update(destination or NONE for _, destination in chunk)
    if not total or ceiling is None:
        raise Conflict(
            "No open dead letter matches.",
            code="nothing_matches",
            next_action="Look at the list with the same filter.",
        )
    return _insert(
        row=Operation(
            id=operation_id,
            kind=kind,
            filter_text=wanted.text(),
            ceiling_id=ceiling[1],
            item_count=total,
            digest=digest.hexdigest(),
            split_text=_split_text(split),
            state=OperationState.PLANNED,
            rate_per_second=per_second,
            reason=text,
            created_by=f"{actor.kind}:{actor.id}"[:160],
        ),
        actor=actor,
    )


def check_filter(wanted: Filter) -> None:
    """InvalidInput: `empty_filter` for one that asks nothing, else the field that is wrong."""
    for name in ("fingerprint", "destination_id", "account_id", "channel"):
        if value := getattr(wanted, name):
            check_id(value, field=name)
    for name in ("since", "before"):
        value = getattr(wanted, name)
        if value is not None and value.tzinfo is None:
            raise InvalidInput("a time needs its offset", field=name)
    if wanted == Filter():
        raise InvalidInput(
            "say which dead letters: an error group, a destination, an account or a time",
            field="filter",
            code="empty_filter",
        )


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
    found = len(_matching(filter).values_list("id", flat=True)[: conf.count_cap + 1])
    return Preview(min(found, conf.count_cap), found > conf.count_cap)


def _matching(wanted: Filter) -> "QuerySet[DeadLetter]":
    """In the order of every index: (created_at, id) after what is asked."""
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


@reading
def _ceiling(*, wanted: Filter) -> Position | None:
    """The newest object of the set: newcomers come after it."""
    newest = _matching(wanted).order_by("-created_at", "-id")
    return newest.values_list("created_at", "id").first()


def _chunks(wanted: Filter, ceiling: Position) -> Iterator[list[tuple[str, str]]]:
    """(id, destination) of the set, oldest first, a chunk at a time."""
    after: Position | None = None
    while found := _chunk(wanted=wanted, after=after, ceiling=ceiling):
        yield [(row_id, destination) for _, row_id, destination in found]
        after = found[-1][:2]


@reading
def _chunk(
    *, wanted: Filter, after: Position | None, ceiling: Position
) -> list[tuple[datetime, str, str]]:
    at, row_id = ceiling
    rows = _matching(wanted).filter(created_at__lte=at)
    rows = rows.filter(Q(created_at__lt=at) | Q(id__lte=row_id))
    if after is not None:
        at, row_id = after
        rows = rows.filter(created_at__gte=at).filter(Q(created_at__gt=at) | Q(id__gt=row_id))
    found = rows.order_by("created_at", "id").values_list("created_at", "id", "destination_id")
    return list(found[:CHUNK_ROWS])


@transaction
def _freeze(*, operation_id: str, first: int, ids: list[str]) -> None:
    now = clock.db_now()
    OperationItem.objects.bulk_create(
        OperationItem(operation_id=operation_id, sequence=number, object_id=one, updated_at=now)
        for number, one in enumerate(ids, start=first)
    )


@transaction
def _insert(*, row: Operation, actor: audit.Actor) -> Operation:
    row.created_at = row.updated_at = clock.db_now()
    insert_new_in_tx(row)
    audit.append_in_tx(
        actor=actor,
        action="operation.plan",
        kind=KIND,
        object_id=row.id,
        after={
            "kind": row.kind,
            "filter": json.loads(row.filter_text),
            "items": row.item_count,
            "digest": row.digest,
        },
        reason=row.reason,
    )
    return row


def _drop(*, operation_id: str) -> None:
    """Forget the items of a plan that is refused."""
    while _drop_chunk(operation_id=operation_id):
        pass


@transaction
def _drop_chunk(*, operation_id: str) -> int:
    rows = OperationItem.objects.filter(operation_id=operation_id).order_by("sequence")
    ids = list(rows.values_list("id", flat=True)[:CHUNK_ROWS])
    return OperationItem.objects.filter(id__in=ids).delete()[0]


def _split_text(split: Counter[str]) -> str:
    named = dict(split.most_common(SPLIT_MAX))
    if others := split.total() - sum(named.values()):
        named[OTHERS] = others
    return json.dumps(named)


def _time_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat()
