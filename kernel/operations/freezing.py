"""Freezing a set: items are written a chunk at a time, oldest first; then it is told (F9).

A small set is frozen by the transaction that plans it. A large one is an operation in `planning`:
whoever works operations off writes its items, a chunk per transaction. Where it stands is in the
items themselves, so that another process goes on after a kill.

Lock order: the operation, then its items.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from kernel import audit, clock
from kernel.conf import conf
from kernel.errors import LostRace
from kernel.models import Operation, OperationItem
from kernel.operations.filters import Position
from kernel.operations.sets import SOURCES
from kernel.states import OPERATION, OperationState
from kernel.transactions import reading, requires_transaction, transaction

KIND = "operation"
CHUNK_ROWS = 1000
CHUNKS_MAX = 5  # of one page
SPLIT_MAX = 50  # destinations that are named; the others are counted together
OTHERS, NONE = "(others)", "(none)"
UNOWNED: dict[str, Any] = {"owner": "", "lease_expires_at": None}

Chosen = tuple[str, str]  # (object id, its destination)


class Tally:
    """What is known of a set so far: how many, their digest in order, how many per destination."""

    def __init__(self) -> None:
        self.count = 0
        self._digest, self._split = hashlib.sha256(), Counter[str]()

    def add(self, chunk: Sequence[Chosen]) -> None:
        """The next items, in the order of the set."""
        self.count += len(chunk)
        self._digest.update("".join(f"{one}\n" for one, _ in chunk).encode())
        self._split.update(destination or NONE for _, destination in chunk)

    def digest(self) -> str:
        """sha256 over the ids, a line each."""
        return self._digest.hexdigest()

    def split_text(self) -> str:
        """JSON: destination -> count, the largest SPLIT_MAX by name."""
        named = dict(self._split.most_common(SPLIT_MAX))
        if others := self._split.total() - sum(named.values()):
            named[OTHERS] = others
        return json.dumps(named)


def freeze_page(row: Operation, tally: Tally) -> bool:
    """Some more chunks of a claimed operation in `planning`; whether that was all.

    `tally` is this owner's: one that took over reads what is frozen already first. LostRace when
    another owner has it.
    """
    for _ in range(CHUNKS_MAX):
        if tally.count < row.item_count:
            tally.add(_frozen(row=row, first=tally.count + 1))
            continue
        chunk = _freeze(operation_id=row.id, owner=row.owner, fence_token=row.fence_token)
        if not chunk:
            return chunk is None or _seal(row=row, tally=tally)
        tally.add(chunk)
        row.item_count += len(chunk)
    return False


@requires_transaction
def insert_items_in_tx(*, operation_id: str, first: int, ids: Sequence[str], at: datetime) -> None:
    """The items with these numbers."""
    OperationItem.objects.bulk_create(
        OperationItem(operation_id=operation_id, sequence=number, object_id=one, updated_at=at)
        for number, one in enumerate(ids, start=first)
    )


@transaction
def _freeze(*, operation_id: str, owner: str, fence_token: int) -> list[Chosen] | None:
    """Write the next chunk. [] when the set is whole; None when it will never be."""
    row = _owned_in_tx(operation_id=operation_id, owner=owner, fence_token=fence_token)
    if row.state != OperationState.PLANNING:
        return None
    after = _position_in_tx(row)
    source = SOURCES[row.kind]
    found = source.after(row.filter_text, after, until=row.created_at, limit=CHUNK_ROWS)
    if not found:
        return []
    if row.item_count + len(found) > conf.operation_items_count_max:
        _refuse_in_tx(row, f"More than {conf.operation_items_count_max} match; narrow the filter.")
        return None
    now = clock.db_now()
    ids = [row_id for _, row_id, _ in found]
    insert_items_in_tx(operation_id=row.id, first=row.item_count + 1, ids=ids, at=now)
    Operation.objects.filter(id=row.id, state=row.state).update(
        item_count=row.item_count + len(ids), ceiling_id=ids[-1], updated_at=now
    )
    return [(row_id, destination) for _, row_id, destination in found]


@requires_transaction
def _position_in_tx(row: Operation) -> Position | None:
    """Where the items end: at the newest one that still exists, for what came after is gone."""
    items = OperationItem.objects.filter(operation_id=row.id).order_by("-sequence")
    number = row.item_count
    while number > 0:
        ids = list(items.filter(sequence__lte=number).values_list("object_id", flat=True)[:100])
        known = SOURCES[row.kind].known(ids)
        if newest := next((one for one in ids if one in known), ""):
            return known[newest][0], newest
        number -= len(ids)
    return None


@transaction
def _seal(*, row: Operation, tally: Tally) -> bool:
    """planning -> planned: the set is whole. Audited by whom it was planned for."""
    found = _owned_in_tx(operation_id=row.id, owner=row.owner, fence_token=row.fence_token)
    if found.state != OperationState.PLANNING:
        return True
    if not found.item_count:
        _refuse_in_tx(found, f"{SOURCES[found.kind].nothing[:-1]} any more.")
        return True
    if found.item_count != tally.count:
        raise LostRace(f"the set of {row.id} is not the one that was counted")
    (source,) = OPERATION.moves_to(OperationState.PLANNED, by="freeze")
    Operation.objects.filter(id=row.id, state=source).update(
        state=OperationState.PLANNED,
        digest=tally.digest(),
        split_text=tally.split_text(),
        updated_at=clock.db_now(),
        **UNOWNED,
    )
    kind, _, name = row.created_by.partition(":")
    audit.append_in_tx(
        actor=audit.Actor(kind, name, request_id=row.id),
        action="operation.freeze",
        kind=KIND,
        object_id=row.id,
        after={"items": tally.count, "digest": tally.digest()},
    )
    return True


@requires_transaction
def _owned_in_tx(*, operation_id: str, owner: str, fence_token: int) -> Operation:
    row = Operation.objects.select_for_update().get(id=operation_id)
    if (row.owner, row.fence_token) != (owner, fence_token):
        raise LostRace(f"operation {operation_id} is another owner's now", code="lost_lease")
    return row


@requires_transaction
def _refuse_in_tx(row: Operation, why: str) -> None:
    sources = OPERATION.moves_to(OperationState.CANCELLED, by="freeze")
    now = clock.db_now()
    Operation.objects.filter(id=row.id, state__in=sources).update(
        state=OperationState.CANCELLED, error_text=why, finished_at=now, updated_at=now, **UNOWNED
    )


@reading
def _frozen(*, row: Operation, first: int) -> list[Chosen]:
    """A chunk that is written already."""
    items = OperationItem.objects.filter(operation_id=row.id, sequence__gte=first)
    ids = list(items.order_by("sequence").values_list("object_id", flat=True)[:CHUNK_ROWS])
    known = SOURCES[row.kind].known(ids)
    return [(one, known[one][1] if one in known else "") for one in ids]
