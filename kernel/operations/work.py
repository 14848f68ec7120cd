"""Operations are worked off: claimed under a lease and a fence, page by page, at their rate (F9).

One in `planning` is frozen first (`freezing`), as fast as it goes: nothing is done by that.

A page is: claim, act on each item in the item's own transactions, record all outcomes in one. A
process that dies in between leaves items whose act has happened; the next owner acts again, which
changes nothing, and tells its predecessor's doing from others' by the audit trail.

Lock order: the operation, then its items.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from django.db import DatabaseError
from django.db.models import F

from kernel import audit, clock, schema, sql
from kernel.conf import conf
from kernel.delivery import dead_letters, replay
from kernel.delivery.admissions import QUEUED, REPLAYED, Replayed
from kernel.errors import Conflict, KernelError, LostRace, Unavailable
from kernel.models import AuditRow, Operation, OperationItem
from kernel.operations import exports
from kernel.operations.freezing import UNOWNED, Tally, freeze_page
from kernel.operations.sets import ARCHIVE
from kernel.runtime.maintenance import PageReport
from kernel.state import RuntimeStateStore
from kernel.states import OPERATION, OperationState
from kernel.transactions import concerns_all, is_lock_wait, reading, short_lock_waits, transaction

log = logging.getLogger(__name__)

PLANNED, DONE, SKIPPED, FAILED = "planned", "done", "skipped", "failed"
ARCHIVED = "dead_letter.archive"
SECONDS_SAVED_MAX = 2.0  # what a slow tick did not use of the rate is made up for
OUTCOME_CHARS_MAX = 300
WORKED_OFF = (OperationState.PLANNING, OperationState.RUNNING)

Item = tuple[int, str]  # (sequence, object id)
Ended = tuple[str, str]  # (state, outcome text)


class Waiting(NamedTuple):
    """An operation to freeze or to work off."""

    id: str
    state: str
    rate_per_second: int


@dataclass(slots=True)
class Pace:
    """How many items one operation may take now; in the memory of its owner."""

    left: float
    at: float

    def refill(self, *, rate: int, now: float) -> int:
        self.left = min(self.left + (now - self.at) * rate, rate * SECONDS_SAVED_MAX)
        self.at = now
        return int(self.left)


@dataclass(slots=True)
class Operations:
    """The pages of the pass `operations` of one kernel; `owner` names it in the rows.

    `only`: the id of the one operation it works on, '' for whichever waits.
    """

    owner: str
    store: RuntimeStateStore
    only: str = ""
    paces: dict[str, Pace] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)
    holds: set[str] = field(default_factory=set)
    _stopped: bool = False

    def stop(self) -> None:
        """Take no further page; the one that is under way is finished and recorded (G3)."""
        self._stopped = True

    def page(self, *, cursor: Any = None, limit: int) -> PageReport:
        """Work off one page of one operation, the one that waited longest: freeze it, or act.

        The report's `cursor` says that there is more to do right now. Nothing without 0067
        or 0069.
        """
        try:
            schema.require(schema.REPLAY)
            schema.require(schema.DELIVERY)
        except Unavailable:
            return PageReport()
        waiting = [] if self._stopped else _waiting(only=self.only)
        self._forget_others({one.id for one in waiting})
        for one in waiting:
            count = self._may_take(one) if one.state == OperationState.RUNNING else limit
            row = _claim(operation_id=one.id, owner=self.owner) if count else None
            if row is None or row.state != one.state:
                continue
            self.holds.add(row.id)
            try:
                with short_lock_waits():
                    if row.state == OperationState.PLANNING:
                        return self._freeze(row)
                    return self._work(row, limit=min(count, limit))
            except DatabaseError as error:
                if not is_lock_wait(error):
                    raise
                log.warning("operation %s waits for what somebody has locked", row.id)
        return PageReport()

    def release(self) -> None:
        """Give back what this owner holds, at an orderly end: it does not count as lost."""
        self.paces.clear()
        self.tallies.clear()
        self.holds.clear()
        _release(owner=self.owner)

    def _may_take(self, one: Waiting) -> int:
        now = clock.monotonic()
        pace = self.paces.setdefault(one.id, Pace(float(one.rate_per_second), now))
        return pace.refill(rate=one.rate_per_second, now=now)

    def _forget_others(self, waiting: set[str]) -> None:
        """Drop what is known of operations that have ended meanwhile, or were stopped."""
        for known in (self.paces, self.tallies):
            for gone in known.keys() - waiting:
                del known[gone]

    def _freeze(self, row: Operation) -> PageReport:
        """Some more items of a set. They are counted by the operation, not by the report."""
        tally = self.tallies.setdefault(row.id, Tally())
        try:
            is_over = freeze_page(row, tally)
        except LostRace:
            log.warning("operation %s was taken over", row.id)
            is_over = True
        if is_over:
            self.tallies.pop(row.id, None)
            self.holds.discard(row.id)
        return PageReport(cursor=row.id)

    def _work(self, row: Operation, *, limit: int) -> PageReport:
        items = _items(operation_id=row.id, first=row.next_sequence, limit=limit)
        also: Callable[[], None] | None = None
        if row.kind in exports.KINDS:
            piece = exports.render(row, items)
            ended = piece.ended
            also = partial(exports.append_in_tx, operation_id=row.id, piece=piece)
        else:
            ended = act_on(row, items, store=self.store)
        self.paces[row.id].left -= len(items)
        try:
            counts = _record(
                operation_id=row.id,
                owner=self.owner,
                fence_token=row.fence_token,
                ended=ended,
                also=also,
            )
        except LostRace:  # this process was too slow; the next owner finds what it did
            log.warning("operation %s was taken over", row.id)
            return PageReport(scanned=len(items), cursor=row.id)
        if counts.is_over:
            self.paces.pop(row.id, None)
            self.holds.discard(row.id)
        return PageReport(
            scanned=len(items),
            settled=counts.by_state[DONE],
            deferred=counts.by_state[SKIPPED],
            failed=counts.by_state[FAILED],
            cursor=row.id,
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """What one record came to, by state of the items, and whether the operation has ended."""

    by_state: Counter[str]
    is_over: bool


# --- acts -----------------------------------------------------------------------------------------


def act_on(row: Operation, items: Sequence[Item], *, store: RuntimeStateStore) -> dict[int, Ended]:
    """Act on each item; its outcome by sequence. A database in trouble is raised (B5).

    An item that fails for a reason of its own is failed and keeps no other waiting.
    """
    if not items:
        return {}
    try:
        return _act_on_all(row, items, store)
    except Exception as error:
        if concerns_all(error):
            raise
        log.warning("operation %s goes on one by one: %s", row.id, type(error).__name__)
    ended: dict[int, Ended] = {}
    for item in items:
        try:
            ended |= _act_on_all(row, [item], store)
        except Exception as error:
            if concerns_all(error):
                raise
            ended[item[0]] = (FAILED, f"defect: {type(error).__name__}")
    return ended


def _act_on_all(
    row: Operation, items: Sequence[Item], store: RuntimeStateStore
) -> dict[int, Ended]:
    kind, _, name = row.created_by.partition(":")
    actor = audit.Actor(kind, name, request_id=row.id)
    if row.kind == ARCHIVE:
        return {number: _archive(one, row, actor) for number, one in items}
    found = replay.replay_page(
        dead_letter_ids=[one for _, one in items], actor=actor, store=store, reason=row.reason
    )
    unclear = [
        one for one, end in found.items() if isinstance(end, Replayed) and end.state != QUEUED
    ]
    ours = _done_before(operation_id=row.id, ids=unclear, action=REPLAYED)
    return {number: _ended(found[one], is_ours=one in ours) for number, one in items}


def _ended(outcome: replay.Outcome, *, is_ours: bool) -> Ended:
    if isinstance(outcome, Replayed):
        if outcome.state == QUEUED or is_ours:
            return DONE, QUEUED
        return SKIPPED, outcome.state
    if outcome.error_code in ("archived", "child_ended"):
        return SKIPPED, outcome.error_code
    return FAILED, f"{outcome.error_code}: {outcome.message}"[:OUTCOME_CHARS_MAX]


def _archive(dead_letter_id: str, row: Operation, actor: audit.Actor) -> Ended:
    try:
        dead_letters.archive(dead_letter_id=dead_letter_id, actor=actor, reason=row.reason)
    except Conflict as error:
        ours = _done_before(operation_id=row.id, ids=[dead_letter_id], action=ARCHIVED)
        state = str(error.details.get("state", error.error_code))
        return (DONE, "archived") if ours else (SKIPPED, state)
    except KernelError as error:
        if error.retryable:
            raise
        return FAILED, f"{error.error_code}: {error.message}"[:OUTCOME_CHARS_MAX]
    return DONE, "archived"


@reading
def _done_before(*, operation_id: str, ids: Sequence[str], action: str) -> set[str]:
    """Which objects this very operation has acted on, before its owner was lost."""
    if not ids:
        return set()
    subjects = {f"{dead_letters.KIND}:{one}": one for one in ids}
    rows = AuditRow.objects.filter(
        subject__in=list(subjects), action=action, request_id=operation_id
    )
    return {subjects[subject] for subject in rows.values_list("subject", flat=True)}


# --- rows -----------------------------------------------------------------------------------------


@reading
def _waiting(*, only: str) -> list[Waiting]:
    """Those to freeze or to work off, the one that waited longest first."""
    found: list[tuple[Any, ...]] = []
    for state in WORKED_OFF:
        rows = Operation.objects.filter(state=state, **({"id": only} if only else {}))
        columns = ("updated_at", "id", "state", "rate_per_second")
        found += rows.order_by("updated_at", "id").values_list(*columns)[:50]
    return [Waiting(*rest) for _, *rest in sorted(found)]


@reading
def _items(*, operation_id: str, first: int, limit: int) -> list[Item]:
    found = sql.values(
        OperationItem,
        ("sequence", "object_id"),
        {"operation_id": operation_id},
        more="AND sequence >= %s ORDER BY sequence LIMIT %s",
        parameters=[first, limit],
    )
    return [(number, object_id) for number, object_id in found]


@transaction
def _claim(*, operation_id: str, owner: str) -> Operation | None:
    """The operation under this owner's fence and lease; None when another one has it.

    Taking it over from an owner whose lease ended counts the interruption.
    """
    found = sql.rows(Operation, {"id": operation_id}, lock=sql.SKIP)
    if not found or found[0].state not in WORKED_OFF:
        return None
    (row,) = found
    now = clock.db_now()
    has_ended = row.lease_expires_at is None or row.lease_expires_at < now
    if row.owner not in ("", owner) and not has_ended:
        return None
    is_new = row.owner != owner or has_ended
    Operation.objects.filter(id=row.id, state=row.state, fence_token=row.fence_token).update(
        owner=owner,
        fence_token=F("fence_token") + (1 if is_new else 0),
        lease_expires_at=now + timedelta(seconds=conf.operation_lease_seconds),
        interruptions=F("interruptions") + (1 if row.owner not in ("", owner) else 0),
    )
    return sql.rows(Operation, {"id": row.id})[0]


@transaction
def _record(
    *,
    operation_id: str,
    owner: str,
    fence_token: int,
    ended: Mapping[int, Ended],
    also: Callable[[], None] | None = None,
) -> Counts:
    """Write the outcomes of a page, and the end when it was the last one (F9).

    LostRace `lost_lease` when another owner has it: that one acts on the items again. A page of an
    operation that was paused or cancelled meanwhile is counted all the same: it has happened.
    """
    (row,) = sql.rows(Operation, {"id": operation_id}, lock=sql.WAIT)
    if (row.owner, row.fence_token) != (owner, fence_token):
        raise LostRace(f"operation {operation_id} is another owner's now", code="lost_lease")
    if also is not None:
        also()
    now = clock.db_now()
    counts: Counter[str] = Counter()
    for state, text in sorted(set(ended.values())):
        numbers = [number for number, end in ended.items() if end == (state, text)]
        counts[state] += sql.update_where_in_tx(
            OperationItem,
            {"state": state, "outcome_text": text, "updated_at": now},
            f"operation_id = %s AND state = %s AND sequence IN ({sql.marks(len(numbers))})",
            [operation_id, PLANNED, *numbers],
        )
    following = max([row.next_sequence, *(number + 1 for number in ended)])
    is_over = following > row.item_count and row.state in OPERATION.moves_to(
        OperationState.DONE, by="work"
    )
    values: dict[str, Any] = {}
    if is_over:
        values = {"state": OperationState.DONE, "finished_at": now, **UNOWNED}
    elif row.state != OperationState.RUNNING:
        values = UNOWNED
    Operation.objects.filter(id=row.id, state=row.state, fence_token=fence_token).update(
        next_sequence=following,
        done_count=F("done_count") + counts[DONE],
        skipped_count=F("skipped_count") + counts[SKIPPED],
        failed_count=F("failed_count") + counts[FAILED],
        updated_at=now,
        **values,
    )
    return Counts(counts, is_over)


@transaction
def _release(*, owner: str) -> None:
    held = Operation.objects.filter(owner=owner, state__in=WORKED_OFF)
    for operation_id, state in held.order_by("id").values_list("id", "state"):
        Operation.objects.filter(id=operation_id, owner=owner, state=state).update(
            updated_at=clock.db_now(), **UNOWNED
        )
