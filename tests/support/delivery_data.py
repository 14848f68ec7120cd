"""Notifications, dead letters and operations for looking at the console, by the product's verbs.

made = delivery_data.busy_post()     # needs an account `acme-prod`
letter_id = delivery_data.dead_letter("HTTP 500 from the shop")

Only times, and states that need a sender, are written past the verbs.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import F

from kernel import clock, operations, outbox
from kernel.audit import Actor
from kernel.delivery import alerts, dead_letters, destinations, replay, sending
from kernel.delivery.claims import Claimed
from kernel.models import (
    DeadLetter,
    DeadLetterGroup,
    DeliveryAttempt,
    Destination,
    Notification,
    Operation,
    OperationItem,
)
from kernel.state import DatabaseStore
from kernel.transactions import transaction

STORE = DatabaseStore()
OLGA = Actor("user", "olga")
ACCOUNT, HOOKS, MAIL, RELAY, OLD = "acme-prod", "shop-hooks", "ops-mail", "crm-relay", "old-hooks"
SERVER_ERROR = "HTTP 500: upstream shop-{n} did not answer in 30.0 s (trace {n}f9c2)"
REFUSED = "connection refused by 203.0.113.{n}:443"
HOSTILE = "\u202egnp.exe <script>alert('x')</script> \x00 rm -rf\u200b / " + "W" * 300
AN_HOUR = 60


@dataclass(frozen=True, slots=True)
class End:
    """How one attempt ends."""

    outcome: str
    evidence: str = ""
    http_status: int | None = None
    is_final: bool = False


def make_destinations(*, account: str = ACCOUNT) -> None:
    """A webhook, a mail address, an executor, and one that is switched off."""
    for name, channel, address, secret in (
        (HOOKS, outbox.WEBHOOK, "https://hooks.example.com/bailing/v2", "SHOP_HOOK_SECRET"),
        (OLD, outbox.WEBHOOK, "https://old.example.com/in", "SHOP_HOOK_SECRET"),
        (MAIL, outbox.EMAIL, "ops@example.com", ""),
        (RELAY, outbox.EXECUTOR, "crm:case-updates", ""),
    ):
        destinations.create_destination(
            account_id=account,
            destination_id=name,
            channel=channel,
            address=address,
            secret_env=secret,
            sender="bailing@example.com" if channel == outbox.EMAIL else "",
            events=["job", "approval"] if channel == outbox.WEBHOOK else ["message"],
            actor=OLGA,
        )
    row = Destination.objects.get(id=OLD)
    destinations.change_destination(
        destination_id=OLD, seen_version=row.version, actor=OLGA, active=False, reason="Moved."
    )


@transaction
def _publish(*, destination_id: str, event: str, data: dict[str, Any], account: str) -> str:
    (name,) = outbox.publish_in_tx(
        account_id=account,
        event=event,
        data=data,
        destination_id=destination_id,
        request_id=str(data.get("request_id", "")),
    )
    return name


def publish(
    destination_id: str = HOOKS,
    event: str = outbox.JOB_FINISHED,
    *,
    account: str = ACCOUNT,
    **data: Any,
) -> str:
    """A queued notification; its id."""
    return _publish(destination_id=destination_id, event=event, data=data, account=account)


def attempt(notification_id: str, end: End) -> sending.Recorded:
    """One attempt at it, right now."""
    token = os.urandom(16).hex()
    now = clock.db_now()
    Notification.objects.filter(id=notification_id, state="queued").update(
        state="sending", owner="krn_sender", fence_token=token, lease_expires_at=now
    )
    row = Notification.objects.get(id=notification_id)
    claimed = Claimed(
        id=row.id,
        kind=row.kind,
        channel=row.channel,
        event=row.event,
        recipient=row.recipient,
        sender=row.sender,
        content=bytes(row.content),
        content_type=row.content_type,
        destination_id=row.destination_id,
        secret_env="",
        allow_private=False,
        number=row.attempts + 1,
        owner="krn_sender",
        fence_token=token,
        started_at=now - timedelta(seconds=0.8),
    )
    return sending.record_attempt(
        claimed=claimed,
        outcome=end.outcome,
        http_status=end.http_status,
        evidence=end.evidence,
        is_final=end.is_final,
    )


def dead_letter(
    error: str = "HTTP 500",
    *,
    unknown: bool = False,
    destination_id: str = HOOKS,
    minutes: int = 0,
    account: str = ACCOUNT,
    **data: Any,
) -> str:
    """A notification that was given up `minutes` ago; the id of its dead letter."""
    name = publish(destination_id, account=account, **data)
    if unknown:
        attempt(name, End("unknown", "the connection was lost after the request was sent"))
    return die(name, error, minutes=minutes)


def die(notification_id: str, error: str, *, minutes: int = 0) -> str:
    """Its last attempt is refused for good; the id of the dead letter."""
    Destination.objects.filter(closed_until_at=None).update(failures=0)
    recorded = attempt(notification_id, End("refused", error, 500, is_final=True))
    assert recorded.dead_letter_id, recorded
    move_back(notification_id, recorded.dead_letter_id, minutes=minutes)
    return recorded.dead_letter_id


def move_back(notification_id: str, dead_letter_id: str, *, minutes: int) -> None:
    """Let it have happened that long ago, attempts some minutes apart."""
    span = timedelta(minutes=minutes)
    rows = Notification.objects.filter(id=notification_id)
    rows.update(
        created_at=F("created_at") - span - timedelta(minutes=10),
        updated_at=F("updated_at") - span,
        finished_at=F("finished_at") - span,
    )
    for each in DeliveryAttempt.objects.filter(notification_id=notification_id):
        back = span + timedelta(minutes=2 * (rows.get().attempts - each.number))
        DeliveryAttempt.objects.filter(id=each.id).update(
            started_at=each.started_at - back, ended_at=each.ended_at - back
        )
    DeadLetter.objects.filter(id=dead_letter_id).update(
        created_at=F("created_at") - span, updated_at=F("updated_at") - span
    )
    letter = DeadLetter.objects.get(id=dead_letter_id)
    DeadLetterGroup.objects.filter(
        fingerprint=letter.error_fingerprint, first_seen_at__gt=letter.created_at
    ).update(first_seen_at=letter.created_at)


def fail_again(dead_letter_id: str, error: str = "HTTP 500") -> str:
    """Replay it, and give the replay up too; the id of the newer dead letter."""
    done = replay.replay(dead_letter_id=dead_letter_id, actor=OLGA, store=STORE, reason="Fixed?")
    return die(done.notification_id, error)


def work_off(operation_id: str, *, items: int = 1_000_000) -> Operation:
    """Let one process work on a running operation, at most so many items."""
    worker = operations.Operations(owner="krn_worker", store=STORE)
    while items > 0:
        report = worker.page(limit=min(items, 200))
        items -= report.scanned
        if not report.scanned:
            break
    return Operation.objects.get(id=operation_id)


def plan(*, reason: str = "The shop is back.", **wanted: Any) -> Operation:
    """A frozen set."""
    row: Operation = operations.plan_replay(
        filter=operations.Filter(**wanted), actor=OLGA, reason=reason, rate_per_second=50
    )
    return row


def close(destination_id: str = HOOKS, *, failures: int = 12) -> None:
    """What many failures in a row do, for long."""
    now = clock.db_now()
    Destination.objects.filter(id=destination_id).update(
        failures=failures, closed_until_at=now + timedelta(days=20), updated_at=now
    )


def busy_post(*, letters: int = 24) -> dict[str, str]:
    """A post room on a bad day; ids by kind."""
    make_destinations()
    made = _sent() | _dead(letters)
    alerts.create_rule(
        rule_id="tell-ops",
        event_prefix=outbox.REQUEST_UNKNOWN,
        destination_id=MAIL,
        actor=OLGA,
        cooldown_seconds=900,
    )
    made |= _operations(made)
    close()
    waiting = publish(HOOKS, outbox.JOB_FINISHED, job="order-3001", state="done")
    due = clock.db_now() - timedelta(minutes=9)
    Notification.objects.filter(id=waiting).update(due_at=due)
    return made | {"overdue": waiting}


def _sent() -> dict[str, str]:
    done = publish(HOOKS, outbox.APPROVAL_OPENED, tool="refund_order", order="order-2201")
    attempt(done, End("not_sent", "connection refused"))
    attempt(done, End("unknown", "no answer within 30.0 s"))
    attempt(done, End("delivered", "", 204))
    mail = publish(MAIL, outbox.MESSAGE, subject="Night report", text="All is well.")
    attempt(mail, End("delivered", "250 2.0.0 queued"))
    child = publish(RELAY, outbox.MESSAGE, case=41, text="The parcel left the depot.")
    return {"delivered": done, "mail": mail, "child": child}


def _dead(letters: int) -> dict[str, str]:
    for number in range(letters):
        error = SERVER_ERROR.format(n=number)
        dead_letter(
            error,
            unknown=number % 6 == 0,
            minutes=20 + number * 7,
            job=f"order-{2300 + number}",
            state="done",
        )
    refused = [
        dead_letter(REFUSED.format(n=number), minutes=300 + number, order=number)
        for number in range(5)
    ]
    hostile = dead_letter(HOSTILE, minutes=3, note=HOSTILE.replace("\x00", ""))
    first = dead_letter("HTTP 410: gone", minutes=2 * AN_HOUR, order=7)
    second = fail_again(first, "HTTP 410: gone")
    dead_letters.archive(
        dead_letter_id=refused[0], actor=OLGA, reason="The customer was called instead."
    )
    big = DeadLetterGroup.objects.order_by("-open_count").first()
    assert big is not None
    one = DeadLetter.objects.filter(error_fingerprint=big.fingerprint, unknown_attempts=1).first()
    assert one is not None
    return {
        "letter": one.id,
        "hostile": hostile,
        "archived": refused[0],
        "first": first,
        "second": second,
        "group": big.fingerprint,
        "refused_group": DeadLetter.objects.get(id=refused[1]).error_fingerprint,
    }


def _operations(made: dict[str, str]) -> dict[str, str]:
    done = plan(fingerprint=made["refused_group"], reason="The firewall rule is gone.")
    skipped = str(_objects(done)[0])
    dead_letters.archive(dead_letter_id=skipped, actor=OLGA, reason="Sent by hand.")
    operations.apply(operation_id=done.id, actor=OLGA, seen_digest=done.digest)
    work_off(done.id)
    paused = plan(fingerprint=made["group"], reason="A first look.")
    operations.apply(operation_id=paused.id, actor=OLGA, seen_digest=paused.digest)
    operations.pause(operation_id=paused.id, actor=OLGA, reason="Wait for the shop.")
    Operation.objects.filter(id=paused.id).update(interruptions=1)
    planned = plan(fingerprint=made["group"])
    return {"op_done": done.id, "op_paused": paused.id, "op_planned": planned.id}


def _objects(row: Operation) -> Sequence[str]:
    rows = OperationItem.objects.filter(operation_id=row.id).order_by("sequence")
    return list(rows.values_list("object_id", flat=True))
