"""Reads of notifications and dead letters: by id, with attempts, replays and lineage (F, L)."""

import json
from dataclasses import dataclass

from kernel import outbox, schema
from kernel.delivery.dead_letters import (
    EXECUTOR,
    FAILED_AGAIN,
    KIND,
    NATIVE,
    admission_id_of,
    no_dead_letter,
)
from kernel.errors import NotFound
from kernel.models import AuditRow, DeadLetter, DeadLetterReplay, DeliveryAttempt, Notification
from kernel.transactions import reading

LINEAGE_MAX = 100  # dead letters of one message that are shown


@dataclass(frozen=True, slots=True)
class Kept:
    """A dead letter with its replay columns; rows from before 0067 get theirs by the channel."""

    letter: DeadLetter
    kind: str
    original_child_id: str
    replay_identity: str


@reading
def get_dead_letter(*, dead_letter_id: str, account_id: str = "") -> Kept:
    """One dead letter, whole. NotFound (with `account_id`, another account's too).

    Unavailable without 0067 or 0069 (H3).
    """
    schema.require(schema.REPLAY)
    schema.require(schema.DELIVERY)
    row = DeadLetter.objects.filter(id=dead_letter_id).first()
    if row is None or (account_id and row.account_id != account_id):
        raise no_dead_letter(dead_letter_id)
    return _kept(row, DeadLetterReplay.objects.get(id=row.id))


@reading
def replay_of(*, dead_letter_id: str) -> Notification | None:
    """The notification that its replay is sent by; None while it was not replayed.

    Without its content.
    """
    schema.require(schema.DELIVERY)
    rows = Notification.objects.defer("content")
    native = rows.filter(id=admission_id_of(dead_letter_id)).first()
    if native is not None:
        return native
    letter = DeadLetter.objects.only("notification_id").filter(id=dead_letter_id).first()
    if letter is None:
        raise no_dead_letter(dead_letter_id)
    return rows.filter(id=letter.notification_id, replay_of_id=dead_letter_id).first()


@reading
def lineage_of(*, dead_letter_id: str) -> list[DeadLetter]:
    """The dead letters of one message, the first failure first (F6). At most LINEAGE_MAX.

    Without their contents.
    """
    schema.require(schema.DELIVERY)
    rows = DeadLetter.objects.defer("content")
    one = rows.filter(id=dead_letter_id).first()
    if one is None:
        raise no_dead_letter(dead_letter_id)
    found = [one]
    while found[0].parent_id and len(found) < LINEAGE_MAX:
        parent = rows.filter(id=found[0].parent_id).first()
        if parent is None:
            break
        found.insert(0, parent)
    while (child_id := _child_of(found[-1].id)) and len(found) < LINEAGE_MAX:
        child = rows.filter(id=child_id).first()
        if child is None:
            break
        found.append(child)
    return found


@reading
def attempts_of(*, notification_id: str) -> list[DeliveryAttempt]:
    """The attempts at one notification, in order; at most `notification_attempts_max` of a run."""
    schema.require(schema.DELIVERY)
    return list(DeliveryAttempt.objects.filter(notification_id=notification_id).order_by("number"))


@reading
def get_notification(*, notification_id: str, account_id: str = "") -> Notification:
    """One notification. NotFound; Unavailable without 0069."""
    schema.require(schema.DELIVERY)
    row = Notification.objects.filter(id=notification_id).first()
    if row is None or (account_id and row.account_id != account_id):
        raise NotFound(f"no notification {notification_id}", notification_id=notification_id)
    return row


@reading
def message_id_of(*, notification_id: str, replay_of_id: str) -> str:
    """The id under which receivers know a message: that of the first notification that had it.

    A native replay is a notification of its own; its receiver sees the id of the original, so that
    it can tell a duplicate (F1).
    """
    seen = 0
    while replay_of_id and seen < LINEAGE_MAX:
        seen += 1
        letter = DeadLetter.objects.filter(id=replay_of_id).values("notification_id").first()
        if letter is None or letter["notification_id"] == notification_id:
            break
        notification_id = letter["notification_id"]
        before = Notification.objects.filter(id=notification_id).values("replay_of_id").first()
        replay_of_id = before["replay_of_id"] if before else ""
    return notification_id


def _kept(row: DeadLetter, columns: DeadLetterReplay) -> Kept:
    by_channel = EXECUTOR if row.channel == outbox.EXECUTOR else NATIVE
    return Kept(
        letter=row,
        kind=columns.kind or by_channel,
        original_child_id=columns.original_child_id or "",
        replay_identity=columns.replay_identity or "",
    )


def _child_of(dead_letter_id: str) -> str:
    """The dead letter that the failure of a replay made; its parent's audit trail names it."""
    rows = AuditRow.objects.filter(subject=f"{KIND}:{dead_letter_id}", action=FAILED_AGAIN)
    text = rows.order_by("-sequence").values_list("after_text", flat=True).first()
    return str(json.loads(text)["dead_letter_id"]) if text else ""
