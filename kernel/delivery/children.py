"""Replay through an executor: the original child job is queued again, when it is the one (F4, F8).

Lock order: the job, then the dead letter, then its notification.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from kernel import audit, clock, outbox
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
    unbound,
)
from kernel.delivery.dead_letters import identity_of, lock_in_tx
from kernel.errors import Conflict, LostRace, NotFound
from kernel.models import DeadLetter, Notification
from kernel.state import Admission, JobRecord, RuntimeStateStore, protocol
from kernel.states import NOTIFICATION, DeadLetterState, JobState, NotificationState
from kernel.transactions import reading, requires_transaction


def replay_child(
    letter: Letter, *, actor: audit.Actor, store: RuntimeStateStore, reason: str
) -> Replayed:
    """Queue the child job once for this dead letter; nothing else is ever run for it (F4, F5).

    Conflict `archived`, `binding_mismatch`, `child_ended`; Unavailable where the store lacks a
    capability (F8) or migration 0067 is absent.
    """
    protocol.require(store, protocol.ENSURE_REPLAY)
    protocol.require(store, protocol.REQUEUE_DELIVERY)
    store.ensure_executor_replay()
    if letter.state == DeadLetterState.ARCHIVED:
        raise archived(letter.id)
    if not letter.child_id:
        raise unbound(letter.id)
    if letter.state == DeadLetterState.RESOLVED:
        return _told_of_child(letter, store)
    try:
        admission = store.requeue_delivery_job_once(
            job_id=letter.child_id,
            marker=identity_of(letter.id),
            verify=partial(_first_mismatch, expected=_expected(dead_letter_id=letter.id)),
            also=partial(_follow_child_in_tx, letter, actor=actor, reason=reason),
        )
    except NotFound as error:  # the child that the dead letter names is not there
        raise unbound(letter.id) from error
    if admission == Admission.ADMITTED:
        return replayed(letter.id, QUEUED, letter.notification_id, letter.child_id)
    if admission == Admission.ALREADY:
        return _told_of_child(letter, store)
    if admission == Admission.IN_FLIGHT:
        return not_admitted(letter.id, letter.notification_id)
    raise Conflict(
        f"The child job {letter.child_id} has ended otherwise; there is nothing to send again.",
        code="child_ended",
        next_action="Read the child job. Archive the dead letter when it was delivered.",
        job_id=letter.child_id,
    )


def _told_of_child(letter: Letter, store: RuntimeStateStore) -> Replayed:
    running = store.get(job_id=letter.child_id).state == JobState.RUNNING
    state = STILL if running else ALREADY
    return replayed(letter.id, state, letter.notification_id, letter.child_id)


@reading
def _expected(*, dead_letter_id: str) -> dict[str, Any]:
    """What the child job must look like, from what the dead letter holds (F4)."""
    row = DeadLetter.objects.get(id=dead_letter_id)
    sent = Notification(
        id=row.notification_id,
        event=row.event,
        recipient=row.recipient,
        sender=row.sender,
        content_type=row.content_type,
        content=row.content,
    )
    return {
        "target": outbox.EXECUTOR,
        "account_id": row.account_id,
        "parent_id": row.job_id or row.notification_id,
        "request_id": row.notification_id,
        "input_text": outbox.child_input(sent),
    }


def _first_mismatch(job: JobRecord, *, expected: Mapping[str, Any]) -> str:
    return next((name for name in expected if getattr(job, name) != expected[name]), "")


@requires_transaction
def _follow_child_in_tx(letter: Letter, *, actor: audit.Actor, reason: str) -> None:
    """Under the child's lock: its notification is with the executor again, for this replay."""
    state = lock_in_tx(dead_letter_id=letter.id).state
    if state == DeadLetterState.ARCHIVED:
        raise archived(letter.id)
    if state != DeadLetterState.OPEN:
        raise LostRace(f"the dead letter {letter.id} is {state} by now")
    sources = NOTIFICATION.moves_to(NotificationState.WITH_EXECUTOR, by="replay")
    dead = Notification.objects.filter(
        id=letter.notification_id, child_job_id=letter.child_id, state__in=sources
    )
    moved = dead.update(
        state=NotificationState.WITH_EXECUTOR,
        replay_of_id=letter.id,
        error_text="",
        finished_at=None,
        updated_at=clock.db_now(),
    )
    if moved != 1:
        raise LostRace(f"notification {letter.notification_id} is not this child's, or not dead")
    note_in_tx({letter.id: letter.notification_id}, actor=actor, reason=reason)
