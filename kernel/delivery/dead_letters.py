"""Dead letters: a final failure kept whole, counted in its group, archived and restored (F3).

A dead letter is written by the transaction that ends its notification. Its replay columns (0067)
are written in the same one: kind, the executor's child job, and the replay identity. Rows from
before 0067 have none; the channel tells their kind, and no group counts them.

Lock order: the dead letter, then its group.
"""

import hashlib
from collections.abc import Mapping

from django.db.models import F

from kernel import audit, clock, schema
from kernel.conf import conf
from kernel.delivery.fingerprints import fingerprint
from kernel.errors import Conflict, NotFound
from kernel.ids import check_text, new_id
from kernel.models import DeadLetter, DeadLetterGroup, DeadLetterReplay, Notification
from kernel.states import DEAD_LETTER, DeadLetterState
from kernel.transactions import insert_new_in_tx, requires_transaction, transaction

KIND = "dead_letter"
NATIVE, EXECUTOR = "native", "executor"
ID_CHARS_MAX = 64
IDENTITY, ADMISSION = "replay.", "ntf_"
FAILED_AGAIN = "dead_letter.failed_again"
REASON_CHARS_MAX = 1000
RECORDER = audit.Actor("system", "delivery")


@requires_transaction
def record_in_tx(
    *, notification: Notification, error_text: str, kind: str, original_child_id: str = ""
) -> DeadLetter:
    """Write the dead letter of a notification that has just become `dead` (F3).

    `kind` is `native` or `executor`; the latter names the child job that failed. Copies what a
    replay needs: recipient, sender, content, identities. The failure of a replay links to its
    parent, which stays resolved and names this one in its audit trail (F6). Call
    `schema.require(schema.REPLAY)` and DELIVERY before the transaction (H3).
    """
    if kind not in (NATIVE, EXECUTOR) or (kind == EXECUTOR) != bool(original_child_id):
        raise ValueError("an executor's dead letter names its child job, a native one none")
    now = clock.db_now()
    kept = kept_text(error_text)
    row = DeadLetter(
        id=new_id("dlq"),
        account_id=notification.account_id,
        notification_id=notification.id,
        channel=notification.channel,
        sender=notification.sender,
        recipient=notification.recipient,
        request_id=notification.request_id,
        job_id=notification.job_id,
        content=bytes(notification.content),
        content_type=notification.content_type,
        event=notification.event,
        destination_id=notification.destination_id,
        unknown_attempts=notification.unknown_attempts,
        error_text=kept,
        error_fingerprint=fingerprint(kept),
        parent_id=notification.replay_of_id,
        state=DeadLetterState.OPEN,
        created_at=now,
        updated_at=now,
    )
    row.save(force_insert=True)
    DeadLetterReplay.objects.filter(id=row.id).update(
        kind=kind,
        original_child_id=original_child_id or None,
        replay_identity=identity_of(row.id),
    )
    if row.parent_id:
        audit.append_in_tx(
            actor=RECORDER,
            action=FAILED_AGAIN,
            kind=KIND,
            object_id=row.parent_id,
            after={"dead_letter_id": row.id},
        )
    _count_new_in_tx(row)
    return row


@requires_transaction
def _count_new_in_tx(row: DeadLetter) -> None:
    group = DeadLetterGroup.objects.filter(fingerprint=row.error_fingerprint)
    counted = group.update(
        total_count=F("total_count") + 1,
        open_count=F("open_count") + 1,
        last_seen_at=row.created_at,
    )
    if counted:
        return
    insert_new_in_tx(
        DeadLetterGroup(
            fingerprint=row.error_fingerprint,
            sample_text=row.error_text,
            channel=row.channel,
            total_count=1,
            open_count=1,
            first_seen_at=row.created_at,
            last_seen_at=row.created_at,
        )
    )


@requires_transaction
def count_open_in_tx(*, changes: Mapping[str, int]) -> None:
    """Move the open counts of groups by fingerprint; always in the same order."""
    for one in sorted(changes):
        if changes[one]:
            DeadLetterGroup.objects.filter(fingerprint=one).update(
                open_count=F("open_count") + changes[one]
            )


def archive(
    *, dead_letter_id: str, actor: audit.Actor, reason: str, account_id: str = ""
) -> DeadLetter:
    """open -> archived with a reason, audited (F9). It is refused to replay until restored.

    NotFound, InvalidInput (reason), Conflict `not_open`, Unavailable without 0067.
    """
    return _set_aside(
        dead_letter_id=dead_letter_id,
        target=DeadLetterState.ARCHIVED,
        actor=actor,
        reason=check_text(reason, field="reason", chars_max=REASON_CHARS_MAX),
        account_id=account_id,
    )


def restore(
    *, dead_letter_id: str, actor: audit.Actor, reason: str, account_id: str = ""
) -> DeadLetter:
    """archived -> open with a reason, audited (F9).

    NotFound, InvalidInput (reason), Conflict `not_archived`, Unavailable without 0067.
    """
    return _set_aside(
        dead_letter_id=dead_letter_id,
        target=DeadLetterState.OPEN,
        actor=actor,
        reason=check_text(reason, field="reason", chars_max=REASON_CHARS_MAX),
        account_id=account_id,
    )


def _set_aside(
    *, dead_letter_id: str, target: str, actor: audit.Actor, reason: str, account_id: str
) -> DeadLetter:
    schema.require(schema.REPLAY)
    schema.require(schema.DELIVERY)
    return move(
        dead_letter_id=dead_letter_id,
        target=target,
        actor=actor,
        reason=reason,
        account_id=account_id,
    )


@transaction
def move(
    *, dead_letter_id: str, target: str, actor: audit.Actor, reason: str, account_id: str = ""
) -> DeadLetter:
    """The one move behind archive and restore."""
    audit.refuse_repeat_in_tx(actor=actor)
    row = lock_in_tx(dead_letter_id=dead_letter_id, account_id=account_id)
    verb = "archive" if target == DeadLetterState.ARCHIVED else "restore"
    sources = DEAD_LETTER.moves_to(target, by=verb)
    if row.state not in sources:
        (wanted,) = sources
        raise Conflict(
            f"The dead letter is {row.state}.",
            code=f"not_{wanted}",
            next_action="Nothing more to do." if row.state == target else "Read it again.",
            state=row.state,
        )
    if target == DeadLetterState.ARCHIVED and _is_admitted_in_tx(row):
        raise Conflict(
            "The dead letter was replayed; only its resolution is missing.",
            code="replayed",
            next_action="Replay it again: nothing is sent twice, and it is resolved.",
        )
    now = clock.db_now()
    DeadLetter.objects.filter(id=row.id, state__in=sources).update(state=target, updated_at=now)
    if is_counted_in_tx(row.id):
        by = 1 if target == DeadLetterState.OPEN else -1
        count_open_in_tx(changes={row.error_fingerprint: by})
    audit.append_in_tx(
        actor=actor,
        action=f"{KIND}.{verb}",
        kind=KIND,
        object_id=row.id,
        before={"state": row.state},
        after={"state": target},
        reason=reason,
    )
    return DeadLetter.objects.get(id=row.id)


@requires_transaction
def lock_in_tx(*, dead_letter_id: str, account_id: str = "") -> DeadLetter:
    """The dead letter, locked, without its content. NotFound; of another account too."""
    rows = DeadLetter.objects.select_for_update().filter(id=dead_letter_id)
    row = rows.defer("content", "error_text").first()
    if row is None or (account_id and row.account_id != account_id):
        raise no_dead_letter(dead_letter_id)
    return row


@requires_transaction
def is_counted_in_tx(dead_letter_id: str) -> bool:
    """Whether its group counts it: rows from before 0067 belong to none."""
    return DeadLetterReplay.objects.filter(id=dead_letter_id, kind__isnull=False).exists()


def identity_of(dead_letter_id: str) -> str:
    """The key of its one admission (F5)."""
    return f"{IDENTITY}{dead_letter_id}"


def admission_id_of(dead_letter_id: str) -> str:
    """The id of the notification that replays a native dead letter: always the same one."""
    plain = f"{ADMISSION}{dead_letter_id}"
    if len(plain) <= ID_CHARS_MAX:
        return plain
    return f"{ADMISSION}{hashlib.sha256(dead_letter_id.encode()).hexdigest()[:40]}"


@requires_transaction
def _is_admitted_in_tx(row: DeadLetter) -> bool:
    """Whether its replay is in a queue already, though the dead letter is not resolved yet."""
    native = Notification.objects.filter(id=admission_id_of(row.id))
    child = Notification.objects.filter(id=row.notification_id, replay_of_id=row.id)
    return native.exists() or child.exists()


def kept_text(text: str) -> str:
    """An error as every database takes it: bounded by bytes, its true size told when cut."""
    clean = text.replace("\x00", "\ufffd")
    if len(clean) <= conf.evidence_bytes_max and clean.isascii():
        return clean
    raw = clean.encode("utf-8", "replace")
    if len(raw) <= conf.evidence_bytes_max:
        return raw.decode()
    half = conf.evidence_bytes_max // 2
    head, tail = raw[:half].decode("utf-8", "ignore"), raw[-half:].decode("utf-8", "ignore")
    return f"{head}\n[... {len(raw)} bytes in all ...]\n{tail}"


def no_dead_letter(dead_letter_id: str) -> NotFound:
    """The error for a dead letter that does not exist for this caller."""
    return NotFound(f"no dead letter {dead_letter_id}", dead_letter_id=dead_letter_id)
