"""Sending: what each attempt came to is recorded, and with it what follows (F2, F3).

The token of a claim decides who may write. An attempt is charged when its outcome is recorded: by
its sender or, for one that was lost, by `recovery`. Everything an outcome entails is one
transaction: the row, the attempt, the destination's count, the dead letter.

Lock order: the notification, then its destination, then dead letters and their group, then windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, Max, OuterRef, Q, QuerySet

from kernel import clock, outbox, schema, sql
from kernel.conf import conf
from kernel.delivery import dead_letters, schedule
from kernel.delivery.claims import Claimed
from kernel.delivery.dead_letters import EXECUTOR, NATIVE, kept_text
from kernel.errors import LostRace, Unavailable
from kernel.models import DeliveryAttempt, Destination, Notification
from kernel.states import NOTIFICATION, Delivery, NotificationState
from kernel.transactions import reading, requires_transaction, transaction

OUTCOMES = frozenset({Delivery.DELIVERED, Delivery.REFUSED, Delivery.NOT_SENT, Delivery.UNKNOWN})
SILENT = frozenset({Delivery.NOT_SENT, Delivery.UNKNOWN})  # the receiver has said nothing
CIRCUIT_OPEN = "circuit_open"
PATIENCE = 3  # times notification_attempts_max: then a message dies, whoever is at fault
SEEN_ROWS_MAX = 10_000  # the newest attempts are looked at, no more


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of a notification: its state, when it is tried again, its dead letter."""

    state: str
    due_at: datetime | None = None
    dead_letter_id: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What one attempt came to, from its sender. `is_final`: trying again is no use."""

    claimed: Claimed
    outcome: str
    http_status: int | None = None
    evidence: str = ""
    retry_after_seconds: float | None = None
    is_final: bool = False


def record_attempt(*, claimed: Claimed, outcome: str, **fields: Any) -> Recorded:
    """One report alone: `fields` are those of Report. Errors: see `record_attempts`."""
    (found,) = record_attempts(items=[Report(claimed, outcome, **fields)])
    if isinstance(found, Exception):
        raise found
    return found


def record_attempts(*, items: Sequence[Report]) -> list[Recorded | Exception]:
    """Write what attempts came to and what follows: delivered, due again, or dead (F2, F3).

    One transaction for all. Evidence is cut to `evidence_bytes_max`, head and tail. After
    `notification_attempts_max` attempts a dead letter is written in the same transaction; it waits
    while the fault is ours (`is_fault_ours`), for `PATIENCE` times as many attempts at most, and
    while migration 0067 is absent (H3). Repeating the call after a lost acknowledgement is fine.
    The outcome of an item is LostRace `lost_lease` when another sender or the recovery has its
    message.
    """
    for item in items:
        if item.outcome not in OUTCOMES:
            raise ValueError(f"{item.outcome} is no outcome of an attempt")
    silent = [item for item in items if item.outcome in SILENT and item.http_status is None]
    ours = frozenset(
        item.claimed.id
        for item in silent
        if item.claimed.number >= conf.notification_attempts_max
        and len(silent) == len(items)  # else somebody has answered just now
        and is_fault_ours(notification_id=item.claimed.id)
    )
    return _record(items=items, ours=ours, missing=missing_for_dead_letters())


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as it is written down. `evidence` is bounded already."""

    number: int
    outcome: str
    http_status: int | None
    evidence: str
    started_at: datetime
    asked_seconds: float | None = None
    is_final: bool = False
    was_probe: bool = False
    is_ours: bool = False  # the fault, as far as can be told


@transaction
def _record(
    *, items: Sequence[Report], ours: frozenset[str], missing: str
) -> list[Recorded | Exception]:
    return [
        _record_one_in_tx(item, is_ours=item.claimed.id in ours, missing=missing) for item in items
    ]


@requires_transaction
def _record_one_in_tx(item: Report, *, is_ours: bool, missing: str) -> Recorded | Exception:
    claimed = item.claimed
    found = sql.rows(Notification, {"id": claimed.id}, lock=sql.WAIT)
    if not found or found[0].fence_token != claimed.fence_token:
        return _lost_lease(claimed.id)
    (row,) = found
    if row.state != NotificationState.SENDING:  # this very claim has recorded it before
        return Recorded(row.state, row.due_at)
    attempt = Attempt(
        number=claimed.number,
        outcome=item.outcome,
        http_status=item.http_status,
        evidence=kept_text(item.evidence),
        started_at=claimed.started_at,
        asked_seconds=item.retry_after_seconds,
        is_final=item.is_final,
        was_probe=claimed.is_probe,
        is_ours=is_ours,
    )
    return end_attempt_in_tx(row, attempt, missing=missing, fence_token=claimed.fence_token)


@requires_transaction
def end_attempt_in_tx(
    row: Notification, attempt: Attempt, *, missing: str, fence_token: str
) -> Recorded:
    """End the attempt of a locked row in `sending`; its token becomes `fence_token`.

    Attempt, destination and dead letter are written with it. `missing` is the sentence that says
    why no dead letter can be written, '' when it can.
    """
    now = clock.db_now()
    row.attempts = attempt.number
    row.unknown_attempts += attempt.outcome == Delivery.UNKNOWN
    row.error_text = "" if attempt.outcome == Delivery.DELIVERED else attempt.evidence
    if attempt.outcome == Delivery.DELIVERED:
        closed = False
        _forget_failures_in_tx(row, was_probe=attempt.was_probe)
    else:
        closed = _count_failure_in_tx(row, was_probe=attempt.was_probe)
    values: dict[str, Any] = {"owner": "", "fence_token": fence_token, "lease_expires_at": None}
    if attempt.outcome == Delivery.DELIVERED:
        values |= {"state": NotificationState.DELIVERED, "finished_at": now}
    elif _is_over(attempt) and not missing and not (closed and _may_wait(attempt)):
        row.error_text = f"{CIRCUIT_OPEN}: {row.error_text}" if closed else row.error_text
        values |= {"state": NotificationState.DEAD, "finished_at": now}
    else:
        wait = schedule.wait_seconds(
            message_id=row.id, number=attempt.number, asked_seconds=attempt.asked_seconds
        )
        if _is_over(attempt) and missing:
            row.error_text = f"{missing} {row.error_text}"
        values |= {"state": NotificationState.QUEUED, "due_at": now + timedelta(seconds=wait)}
    _move_in_tx(row, source=NotificationState.SENDING, at=now, **values)
    _write_attempt_in_tx(row, attempt, ended_at=now, next_due_at=values.get("due_at"))
    if values["state"] != NotificationState.DEAD:
        return Recorded(values["state"], values.get("due_at"))
    return Recorded(NotificationState.DEAD, None, _die_in_tx(row, kind=NATIVE))


def _is_over(attempt: Attempt) -> bool:
    return attempt.is_final or attempt.number >= conf.notification_attempts_max


def _may_wait(attempt: Attempt) -> bool:
    return attempt.is_ours and attempt.number < PATIENCE * conf.notification_attempts_max


@requires_transaction
def _move_in_tx(row: Notification, *, source: str, at: datetime, **values: Any) -> None:
    """Compare-and-set from `source`, under the token that the row was read with."""
    assert source in NOTIFICATION.moves_to(values["state"]), "states.py allows this move"
    moved = sql.update_where_in_tx(
        Notification,
        {
            "attempts": row.attempts,
            "unknown_attempts": row.unknown_attempts,
            "error_text": row.error_text,
            "updated_at": at,
            **values,
        },
        "id = %s AND state = %s AND fence_token = %s",
        [row.id, source, row.fence_token],
    )
    if moved != 1:
        raise _lost_lease(row.id)


@requires_transaction
def _write_attempt_in_tx(
    row: Notification, attempt: Attempt, *, ended_at: datetime, next_due_at: datetime | None
) -> None:
    sql.insert_new_row_in_tx(
        DeliveryAttempt(
            notification_id=row.id,
            number=attempt.number,
            outcome=attempt.outcome,
            http_status=attempt.http_status,
            evidence_text=attempt.evidence,
            # Two clocks may have judged: the database keeps one order.
            started_at=min(attempt.started_at, ended_at),
            ended_at=ended_at,
            next_due_at=next_due_at,
        )
    )


@requires_transaction
def _forget_failures_in_tx(row: Notification, *, was_probe: bool) -> None:
    """A delivery opens what failures closed, or what its probe found well (F2).

    Most deliveries write nothing here: the destination is shared by all of its messages.
    """
    seen = sql.rows(
        Destination, {"id": row.destination_id}, columns=("failures", "closed_until_at")
    )
    if not seen or (seen[0].failures, seen[0].closed_until_at) == (0, None):
        return
    same = Destination.objects.filter(id=row.destination_id)
    now = clock.db_now()
    if was_probe or seen[0].failures >= conf.destination_failures_count_max:
        same.update(failures=0, closed_until_at=None, updated_at=now)
    else:  # a person closed it; a message that was on its way does not open it
        same.update(failures=0, updated_at=now)


@requires_transaction
def _count_failure_in_tx(row: Notification, *, was_probe: bool) -> bool:
    """Count it; too many in a row close the destination for a time. True when it is closed (F2)."""
    same = Destination.objects.filter(id=row.destination_id)
    destination = same.select_for_update().first()
    if destination is None:
        return False
    now = clock.db_now()
    failures = destination.failures + 1
    until = destination.closed_until_at
    closed = now + timedelta(seconds=conf.destination_closed_seconds)
    if was_probe:
        until = closed
    elif failures >= conf.destination_failures_count_max:
        until = max(until or closed, closed)
    same.update(failures=failures, closed_until_at=until, updated_at=now)
    return until is not None


@reading
def is_fault_ours(*, notification_id: str) -> bool:
    """Whether another active destination was silent of late, and nobody has answered since.

    Then it is our network, not their receivers (F2). Of late: within the longest wait of the
    schedule, for who waits is tried that often. Since: since that silence and since this message's
    own last attempt. A refusal is an answer; an executor comes to us, so it proves nothing.
    """
    newest = DeliveryAttempt.objects.aggregate(top=Max("id"))["top"] or 0
    seen = DeliveryAttempt.objects.filter(id__gt=newest - SEEN_ROWS_MAX)
    tried = DeliveryAttempt.objects.filter(notification_id=notification_id).order_by("-number")
    since = tried.values_list("id", flat=True).first()
    if since is not None and _is_answered(seen.filter(id__gt=since)):
        return False  # the usual end, without a look at anything older
    silence = _silence(seen, notification_id)
    return silence is not None and not _is_answered(seen.filter(id__gt=silence))


def _silence(seen: QuerySet[DeliveryAttempt], notification_id: str) -> int | None:
    """The id of the newest attempt of late at which another destination said nothing."""
    own = Notification.objects.filter(id=notification_id).values_list("destination_id", flat=True)
    others = Destination.objects.filter(active=True).exclude(id=own.first() or "")
    longest = conf.notification_retry_max_seconds * (1 + schedule.JITTER)
    silent = seen.filter(
        Exists(_sent_by_us().filter(destination_id__in=others.values("id"))),
        outcome__in=sorted(SILENT),
        http_status__isnull=True,
        ended_at__gt=clock.db_now() - timedelta(seconds=longest),
    )
    return silent.order_by("-id").values_list("id", flat=True).first()


def _is_answered(attempts: QuerySet[DeliveryAttempt]) -> bool:
    spoken = Q(http_status__isnull=False) | ~Q(outcome__in=sorted(SILENT))
    return attempts.filter(spoken & Exists(_sent_by_us())).exists()


def _sent_by_us() -> QuerySet[Notification]:
    """The notification of an attempt, unless an executor has it."""
    return Notification.objects.filter(id=OuterRef("notification_id")).exclude(
        channel=outbox.EXECUTOR
    )


@requires_transaction
def _die_in_tx(row: Notification, *, kind: str, original_child_id: str = "") -> str:
    """Write the dead letter and tell who asked to know; an alert's own death tells nobody (F1)."""
    letter = dead_letters.record_in_tx(
        notification=row,
        error_text=row.error_text,
        kind=kind,
        original_child_id=original_child_id,
    )
    if row.kind != outbox.ALERT:
        outbox.publish_in_tx(
            account_id=row.account_id,
            event=outbox.DEAD_LETTER_CREATED,
            data={
                "dead_letter_id": letter.id,
                "notification_id": row.id,
                "event": row.event,
                "channel": row.channel,
                "destination_id": row.destination_id,
                "attempts": row.attempts,
                "unknown_attempts": row.unknown_attempts,
                "error": letter.error_text[:500],
                "fingerprint": letter.error_fingerprint,
            },
            request_id=row.request_id,
            job_id=row.job_id,
        )
    return letter.id


@requires_transaction
def end_child_in_tx(*, job_id: str, delivered: bool, error: str = "") -> Recorded | None:
    """The end of an executor's child job, in the transaction that ends the job (F3, F7).

    with_executor -> delivered, or dead with a dead letter of kind `executor`: the executor has made
    its own attempts. None when the job is no notification's child, or was dealt with before. While
    migration 0067 is absent a failure waits here, and recovery ends it later (H3).
    """
    row = Notification.objects.select_for_update().filter(child_job_id=job_id).first()
    if row is None or row.state != NotificationState.WITH_EXECUTOR:
        return None
    now = clock.db_now()
    missing = "" if delivered else missing_for_dead_letters()
    if missing:
        Notification.objects.filter(id=row.id, state=NotificationState.WITH_EXECUTOR).update(
            error_text=kept_text(f"{missing} {error}"), updated_at=now
        )
        return Recorded(row.state)
    attempt = Attempt(
        number=row.attempts + 1,
        outcome=Delivery.DELIVERED if delivered else Delivery.REFUSED,
        http_status=None,
        evidence=kept_text(error),
        started_at=row.updated_at,
    )
    row.attempts, row.error_text = attempt.number, attempt.evidence
    if delivered:
        _forget_failures_in_tx(row, was_probe=False)
    else:
        _count_failure_in_tx(row, was_probe=False)
    state = NotificationState.DELIVERED if delivered else NotificationState.DEAD
    _move_in_tx(row, source=NotificationState.WITH_EXECUTOR, at=now, state=state, finished_at=now)
    _write_attempt_in_tx(row, attempt, ended_at=now, next_due_at=None)
    letter = "" if delivered else _die_in_tx(row, kind=EXECUTOR, original_child_id=job_id)
    return Recorded(state, None, letter)


def missing_for_dead_letters() -> str:
    """'' when dead letters can be written, else the sentence that names the migration (H3)."""
    try:
        schema.require(schema.REPLAY)
    except Unavailable as error:
        return f"{error.message} {error.way_out}"
    return ""


def _lost_lease(notification_id: str) -> LostRace:
    return LostRace(
        f"notification {notification_id} is not held by this claim any more",
        code="lost_lease",
        next_action="Nothing: it was recorded as unknown and is sent again.",
        notification_id=notification_id,
    )
