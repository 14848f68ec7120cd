"""Replay: a dead letter is queued again once, whatever is lost on the way (F4-F6, F8).

Two steps, each its own transaction: admit (the one durable place in a queue), then resolve the dead
letter. The replay identity is the key of the admission:
- native: a new notification whose id follows from the dead letter's, so its primary key admits
  once; it goes to the recipient that failed, from the same sender, with the same bytes;
- executor: the original child job is queued again by the state store, which keeps the identity as
  a marker on the job; never the business parent.
A repeat after a lost acknowledgement finds the admission and finishes what is missing.

Lock order: the job (executor), then dead letters by id, then notifications, then groups.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from kernel import audit, clock, outbox, schema, sql
from kernel.delivery.admissions import (
    ALREADY,
    QUEUED,
    STILL,
    Letter,
    Replayed,
    archived,
    not_admitted,
    note_in_tx,
    replayed,
)
from kernel.delivery.children import replay_child
from kernel.delivery.dead_letters import (
    EXECUTOR,
    NATIVE,
    admission_id_of,
    count_open_in_tx,
    no_dead_letter,
)
from kernel.delivery.natives import insert_natives_in_tx
from kernel.errors import KernelError, Refused, Unavailable
from kernel.models import DeadLetter, DeadLetterReplay, Notification
from kernel.state import RuntimeStateStore
from kernel.states import DEAD_LETTER, DeadLetterState, NotificationState
from kernel.transactions import reading, transaction

ADMIT_ROWS = 200  # of one transaction
NOT_ENDED = frozenset(
    {NotificationState.QUEUED, NotificationState.SENDING, NotificationState.WITH_EXECUTOR}
)

Outcome = Replayed | KernelError


def replay(
    *,
    dead_letter_id: str,
    actor: audit.Actor,
    store: RuntimeStateStore,
    reason: str = "",
    account_id: str = "",
) -> Replayed:
    """Queue a dead letter again, once for good, audited; then resolve it (F4, F5).

    Any number of calls, at once or after lost acknowledgements, share the one admission; a call
    repairs a resolve that failed. NotFound (with `account_id` also for another account's); Conflict
    `archived`, `binding_mismatch` (details: binding), `child_ended`; Unavailable
    `migration_missing` and `capability_missing` (F8): nothing was sent then.
    """
    found = replay_page(
        dead_letter_ids=[dead_letter_id],
        actor=actor,
        store=store,
        reason=reason,
        account_id=account_id,
    )
    outcome = found[dead_letter_id]
    if isinstance(outcome, KernelError):
        raise outcome
    return outcome


def replay_page(
    *,
    dead_letter_ids: Sequence[str],
    actor: audit.Actor,
    store: RuntimeStateStore,
    reason: str = "",
    account_id: str = "",
) -> dict[str, Outcome]:
    """The same for many: an outcome for each id, a refusal as the error it is (F9).

    Natives share their transactions. What the database refuses is raised; the same call is fine.
    """
    schema.require(schema.REPLAY)
    schema.require(schema.DELIVERY)
    outcomes: dict[str, Outcome] = {}
    for start in range(0, len(dead_letter_ids), ADMIT_ROWS):
        ids = list(dead_letter_ids[start : start + ADMIT_ROWS])
        outcomes |= _replay_some(ids, actor=actor, store=store, reason=reason, account=account_id)
    return outcomes


def _replay_some(
    ids: list[str], *, actor: audit.Actor, store: RuntimeStateStore, reason: str, account: str
) -> dict[str, Outcome]:
    letters = _read(ids=ids, account_id=account)
    outcomes: dict[str, Outcome] = {one: no_dead_letter(one) for one in ids if one not in letters}
    natives = [one.id for one in letters.values() if one.kind == NATIVE]
    if natives:
        outcomes |= _admit_natives(ids=sorted(natives), actor=actor, reason=reason)
    for one in letters.values():
        if one.kind == EXECUTOR:
            outcomes[one.id] = _outcome_of(
                partial(replay_child, one, actor=actor, store=store, reason=reason)
            )
    admitted = [
        one.id
        for one in letters.values()
        if one.state == DeadLetterState.OPEN and getattr(outcomes[one.id], "admitted", False)
    ]
    if admitted:
        _resolve(ids=sorted(admitted))
    return outcomes


def _outcome_of(act: Callable[[], Replayed]) -> Outcome:
    """What it came to; a refusal is an outcome, a database in trouble is not."""
    try:
        return act()
    except Refused as error:
        return error
    except Unavailable as error:
        if error.error_code in ("capability_missing", "migration_missing"):
            return error
        raise


@reading
def _read(*, ids: Sequence[str], account_id: str) -> dict[str, Letter]:
    where: dict[str, Any] = {"id": ids} | ({"account_id": account_id} if account_id else {})
    found = sql.values(DeadLetter, ("id", "state", "channel", "notification_id"), where)
    names = ("id", "kind", "original_child_id")
    replays = {one[0]: one[1:] for one in sql.values(DeadLetterReplay, names, {"id": ids})}
    letters = {}
    for row_id, state, channel, notification_id in found:
        kind, child_id = replays[row_id]
        # Rows from before 0067 have no kind; their channel tells it.
        kind = kind or (EXECUTOR if channel == outbox.EXECUTOR else NATIVE)
        letters[row_id] = Letter(row_id, state, kind, notification_id, child_id or "")
    return letters


# --- native ---------------------------------------------------------------------------------------


@transaction
def _admit_natives(*, ids: Sequence[str], actor: audit.Actor, reason: str) -> dict[str, Outcome]:
    """Insert the notifications that are not there yet; the dead letters stay locked meanwhile."""
    columns = ("id", "state", "notification_id", "event")
    letters = sql.values(DeadLetter, columns, {"id": ids}, more="ORDER BY id", lock=sql.WAIT)
    names = {letter_id: admission_id_of(letter_id) for letter_id, *_ in letters}
    known = _states_of([*names.values(), *(one[2] for one in letters)])
    outcomes: dict[str, Outcome] = {}
    new: dict[str, list[str]] = {}
    for letter_id, state, original_id, event in letters:
        name = names[letter_id]
        if name in known or state == DeadLetterState.RESOLVED:
            outcomes[letter_id] = replayed(letter_id, _told(known.get(name)), name)
        elif state == DeadLetterState.ARCHIVED:
            outcomes[letter_id] = archived(letter_id)
        elif known.get(original_id, ("", 0))[0] in NOT_ENDED:
            outcomes[letter_id] = not_admitted(letter_id, original_id)
        else:
            outcomes[letter_id] = replayed(letter_id, QUEUED, name)
            new.setdefault(outbox.kind_of(event), []).append(letter_id)
    for kind, found in sorted(new.items()):
        insert_natives_in_tx(ids=found, kind=kind)
    if new:
        admitted = {one: names[one] for found in new.values() for one in found}
        note_in_tx(admitted, actor=actor, reason=reason)
    return outcomes


@reading
def _states_of(ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    found = sql.values(Notification, ("id", "state", "attempts"), {"id": list(ids)})
    return {row_id: (state, count) for row_id, state, count in found}


def _told(found: tuple[str, int] | None) -> str:
    """`still_in_flight` between the first attempt of a replay and its end."""
    state, attempts = found or ("", 0)
    being_sent = state == NotificationState.SENDING
    return STILL if being_sent or (state == NotificationState.QUEUED and attempts) else ALREADY


# --- both -----------------------------------------------------------------------------------------


@transaction
def _resolve(*, ids: Sequence[str]) -> None:
    """open -> resolved for those still open; their groups count them no longer (F5, F6)."""
    sources = DEAD_LETTER.moves_to(DeadLetterState.RESOLVED)
    columns, where = ("id", "error_fingerprint"), {"id": ids, "state": sources}
    found = sql.values(DeadLetter, columns, where, more="ORDER BY id", lock=sql.WAIT)
    prints = {one[0]: one[1] for one in found}
    if not prints:
        return
    now = clock.db_now()
    sql.update_where_in_tx(
        DeadLetter,
        {"state": DeadLetterState.RESOLVED, "resolved_at": now, "updated_at": now},
        f"id IN ({sql.marks(len(prints))}) AND state IN ({sql.marks(len(sources))})",
        [*prints, *sources],
    )
    counted = sql.values(
        DeadLetterReplay, ("id",), {"id": list(prints)}, more="AND kind IS NOT NULL"
    )
    changes: dict[str, int] = {}
    for (row_id,) in counted:
        changes[prints[row_id]] = changes.get(prints[row_id], 0) - 1
    count_open_in_tx(changes=changes)
