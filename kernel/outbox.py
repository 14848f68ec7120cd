"""The outbox: an intent to notify is a row, written by the transaction that causes it (F1).

A destination of the account gets every event whose name begins with one of its prefixes, by dots.
A rule turns events of any account into alerts: one per cooldown and account, the others counted.
Nothing here sends; `kernel/delivery` reads the rows. The bytes of a message are made here, once.

Lock order: whatever the caller holds, then the windows of alerts in the order of their rules.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import F

from kernel import clock, schema, sql
from kernel.conf import conf
from kernel.errors import Conflict, InvalidInput, NotFound, Unavailable
from kernel.ids import new_id
from kernel.models import AlertRule, AlertWindow, Destination, Job, Notification
from kernel.runtime.wake import NOTIFICATIONS, wake_after_commit_in_tx
from kernel.states import JobState, NotificationState
from kernel.transactions import insert_new_in_tx, requires_transaction

JOB_FINISHED = "job.finished"
APPROVAL_OPENED, APPROVAL_DECIDED = "approval.opened", "approval.decided"
REQUEST_UNKNOWN, REQUEST_UNPRICED = "request.unknown", "request.unpriced"
DEAD_LETTER_CREATED = "dead_letter.created"
MESSAGE = "message"
# What destinations and rules may ask for; a prefix of one of them is enough.
EVENTS = (
    JOB_FINISHED,
    APPROVAL_OPENED,
    APPROVAL_DECIDED,
    REQUEST_UNKNOWN,
    REQUEST_UNPRICED,
    DEAD_LETTER_CREATED,
    MESSAGE,
)
# A message is its sender's words: no event that a rule could watch.
ALERTING = frozenset(EVENTS) - {MESSAGE}
ALERT = "alert"
KINDS = {
    "job": "callback",
    "approval": "approval_webhook",
    "alert": ALERT,
    "dead_letter": ALERT,
}
WEBHOOK, EMAIL, APPRISE, EXECUTOR = "webhook", "email", "apprise", "executor"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an account. `data` is JSON, without secrets."""

    account_id: str
    name: str
    data: Mapping[str, Any]
    request_id: str = ""
    job_id: str = ""


@requires_transaction
def publish_in_tx(
    *,
    account_id: str,
    event: str,
    data: Mapping[str, Any],
    request_id: str = "",
    job_id: str = "",
    destination_id: str = "",
    notification_id: str = "",
) -> list[str]:
    """Write one notification per destination that wants this event; returns their ids (F1).

    With `destination_id` only that destination gets it, whatever it asked for: NotFound when it is
    not the account's, Conflict `destination_inactive`. `notification_id` is its id then, where the
    caller has one. InvalidInput (`data`) for what is no JSON or
    over `notification_bytes_max`. [] while migration 0069 is absent: no destination exists then.
    """
    happened = Event(account_id, event, data, request_id, job_id)
    if not destination_id:
        return publish_all_in_tx(events=[happened])
    row = Destination.objects.filter(id=destination_id, account_id=account_id).first()
    if row is None:
        raise NotFound(f"no destination {destination_id}", field="destination_id")
    if not row.active:
        raise Conflict(
            f"The destination {destination_id} is not active.",
            code="destination_inactive",
            next_action="Make it active, or name another one.",
        )
    return _insert_in_tx([(row, happened)], name=notification_id)


@requires_transaction
def publish_all_in_tx(*, events: Sequence[Event]) -> list[str]:
    """The same for many events at once: one look at destinations and rules for all of them."""
    if not events or not _is_available():
        return []
    where = {"account_id": {each.account_id for each in events}, "active": True}
    wanted = defaultdict(list)
    for row in sql.rows(Destination, where, more="ORDER BY id"):
        wanted[row.account_id].append(row)
    pairs = [
        (row, each)
        for each in events
        for row in wanted[each.account_id]
        if matches(each.name, json.loads(row.events_text))
    ]
    return _insert_in_tx([*pairs, *_alerts_in_tx(events)])


def matches(event: str, prefixes: Iterable[str]) -> bool:
    """Whether a prefix names this event, dot by dot: `job` fits job.finished, `jo` does not."""
    return any(event == prefix or event.startswith(f"{prefix}.") for prefix in prefixes)


def kind_of(event: str) -> str:
    """The kind of a notification about this event: callback, approval_webhook, alert, delivery."""
    return KINDS.get(event.partition(".")[0], "delivery")


def content_of(event: str, data: Mapping[str, Any], *, at: datetime) -> bytes:
    """The bytes of a message, the same for every attempt. InvalidInput (`data`)."""
    value = {
        "type": event,
        "timestamp": at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "data": data,
    }
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        content = text.encode()
    except (ValueError, TypeError, RecursionError):
        raise InvalidInput(
            "data must be JSON: no NaN, no lone surrogates, nothing else", field="data"
        ) from None
    if len(content) > conf.notification_bytes_max:
        raise InvalidInput(
            f"the message is larger than {conf.notification_bytes_max} bytes", field="data"
        )
    return content


@requires_transaction
def _insert_in_tx(pairs: Sequence[tuple[Destination, Event]], *, name: str = "") -> list[str]:
    if not pairs:
        return []
    now = clock.db_now()
    rows, children = [], []
    for destination, event in pairs:
        row = Notification(
            id=name or new_id("ntf"),
            account_id=destination.account_id,
            kind=kind_of(event.name),
            channel=destination.channel,
            sender=destination.sender,
            recipient=destination.address,
            request_id=event.request_id,
            job_id=event.job_id,
            content=content_of(event.name, event.data, at=now),
            state=NotificationState.QUEUED,
            due_at=now,
            created_at=now,
            updated_at=now,
            event=event.name,
            destination_id=destination.id,
        )
        if destination.channel == EXECUTOR:
            children.append(child_of(row, at=now))
            row.state, row.child_job_id = NotificationState.WITH_EXECUTOR, children[-1].id
        rows.append(row)
    Job.objects.bulk_create(children)
    Notification.objects.bulk_create(rows)
    wake_after_commit_in_tx(what=NOTIFICATIONS)
    return [row.id for row in rows]


def child_of(row: Notification, *, at: datetime) -> Job:
    """The job by which an executor sends this notification; its parent is never run for it (F4)."""
    return Job(
        id=new_id("job"),
        account_id=row.account_id,
        request_id=row.id,
        target=EXECUTOR,
        parent_id=row.job_id or row.id,
        input_text=child_input(row),
        state=JobState.QUEUED,
        due_at=at,
        created_at=at,
        updated_at=at,
    )


def child_input(row: Notification) -> str:
    """What the executor is told: where to, what, and the message id that stays the same."""
    value = {
        "notification_id": row.id,
        "event": row.event,
        "recipient": row.recipient,
        "sender": row.sender,
        "content_type": row.content_type,
        "content": bytes(row.content).decode(),
    }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- alerts ---------------------------------------------------------------------------------------


@requires_transaction
def _alerts_in_tx(events: Sequence[Event]) -> list[tuple[Destination, Event]]:
    """The alerts that these events cause now; those inside a window are only counted.

    An alert is no event: one that cannot be delivered never causes another.
    """
    grave = [each for each in events if each.name in ALERTING]
    rules = sql.rows(AlertRule, {"active": True}, more="ORDER BY id") if grave else []
    found = []
    for rule in rules:
        by_account: dict[str, list[Event]] = defaultdict(list)
        for each in grave:
            if matches(each.name, (rule.event_prefix,)):
                by_account[each.account_id].append(each)
        if not by_account:
            continue
        target = Destination.objects.filter(id=rule.destination_id, active=True).first()
        if target is None:
            continue
        for account_id in sorted(by_account):
            many = by_account[account_id]
            kept_back = _take_turn_in_tx(rule, account_id, count=len(many))
            if kept_back is not None:
                found.append((target, _alert(rule, many, kept_back=kept_back)))
    return found


@requires_transaction
def _take_turn_in_tx(rule: AlertRule, account_id: str, *, count: int) -> int | None:
    """How many events were kept back since the last alert, or None: the window is not over.

    By the database's clock. Two at once meet at the unique key or at the row's lock.
    """
    now = clock.db_now()
    windows = AlertWindow.objects.filter(rule_id=rule.id, account_id=account_id)
    window = windows.select_for_update().first()
    if window is None:
        insert_new_in_tx(
            AlertWindow(rule_id=rule.id, account_id=account_id, fired_at=now, suppressed=count - 1)
        )
        return 0
    if window.fired_at + timedelta(seconds=rule.cooldown_seconds) > now:
        windows.update(suppressed=F("suppressed") + count)
        return None
    windows.update(fired_at=now, suppressed=count - 1)
    return window.suppressed


def _alert(rule: AlertRule, events: Sequence[Event], *, kept_back: int) -> Event:
    first = events[0]
    return Event(
        account_id=first.account_id,
        name=f"{ALERT}.{first.name}",
        data={
            "rule_id": rule.id,
            "account_id": first.account_id,
            "event": first.name,
            "count": len(events),
            "kept_back_since_the_last": kept_back,
            "first": first.data,
        },
        request_id=first.request_id,
        job_id=first.job_id,
    )


def _is_available() -> bool:
    try:
        schema.require(schema.DELIVERY)
    except Unavailable:
        return False
    return True
