"""Destinations and notifications that the tests of sending start from."""

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from kernel import clock, outbox
from kernel.audit import Actor
from kernel.delivery import alerts, destinations
from kernel.delivery.claims import Claimed, claim
from kernel.delivery.sending import Recorded, record_attempt
from kernel.models import (
    Account,
    AlertRule,
    DeadLetter,
    DeliveryAttempt,
    Destination,
    Notification,
)
from kernel.transactions import transaction
from tests.support.product import make_account

ANN = Actor("user", "ann")
SECRET_ENV = "TEST_HOOK_SECRET"
SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQtMDE="
EVERYTHING = ("job", "approval", "request", "dead_letter", "message")


@transaction
def in_tx(*, act: Callable[[], Any]) -> Any:
    """One transaction around verbs that join their caller's."""
    return act()


def destination(name: str = "ops", *, account_id: str = "acme", **fields: Any) -> Destination:
    """An active destination; its account is made when it is missing."""
    values = {
        "channel": "webhook",
        "address": f"http://127.0.0.1:9/{name}",
        "events": ["message"],
        "secret_env": SECRET_ENV,
        "allow_private": True,
        **fields,
    }
    if values["channel"] != "webhook":
        values["secret_env"] = ""
    account(account_id)
    return destinations.create_destination(
        destination_id=name, account_id=account_id, actor=ANN, **values
    )


def account(account_id: str = "acme") -> None:
    if not _has_account(account_id):
        make_account(account_id)


def _has_account(account_id: str) -> bool:
    return Account.objects.filter(id=account_id).exists()


def rule(prefix: str = "dead_letter", destination_id: str = "ops", **fields: Any) -> AlertRule:
    return alerts.create_rule(
        event_prefix=prefix, destination_id=destination_id, actor=ANN, **fields
    )


def publish(event: str = "message", *, account_id: str = "acme", **fields: Any) -> list[str]:
    """The ids of the notifications that this event made."""
    values = {"data": {"text": "hello"}, **fields}
    act = partial(outbox.publish_in_tx, account_id=account_id, event=event, **values)
    return in_tx(act=act)


def queued(count: int = 1, *, to: str = "ops", **fields: Any) -> list[str]:
    """Messages to one destination, in order."""
    return [publish(destination_id=to, **fields)[0] for _ in range(count)]


def take(limit: int = 50, *, owner: str = "snd_a", **busy: int) -> list[Claimed]:
    return claim(owner=owner, limit=limit, busy=busy)


def take_one(**fields: Any) -> Claimed:
    (claimed,) = take(1, **fields)
    return claimed


def failed(claimed: Claimed, outcome: str = "refused", **fields: Any) -> Recorded:
    values = {"http_status": 500, "evidence": "HTTP 500 out of order", **fields}
    return record_attempt(claimed=claimed, outcome=outcome, **values)


def delivered(claimed: Claimed) -> Recorded:
    return record_attempt(claimed=claimed, outcome="delivered", http_status=200, evidence="ok")


def fail_until_dead(notification_id: str, **fields: Any) -> DeadLetter:
    """Every attempt fails; each is due at once."""
    while reread(notification_id).state == "queued":
        due_now(notification_id)
        open_all()
        failed(take_one(), **fields)
    return DeadLetter.objects.get(notification_id=notification_id)


def open_all() -> None:
    Destination.objects.update(closed_until_at=None)


def due_now(notification_id: str) -> None:
    past = clock.db_now() - timedelta(seconds=1)
    Notification.objects.filter(id=notification_id, state="queued").update(due_at=past)


def let_lease_end(notification_id: str) -> None:
    past = clock.db_now() - timedelta(seconds=1)
    Notification.objects.filter(id=notification_id, state="sending").update(lease_expires_at=past)


def let_reopen(destination_id: str = "ops") -> None:
    """The time of a closed destination is over."""
    past = clock.db_now() - timedelta(seconds=1)
    Destination.objects.filter(id=destination_id).update(closed_until_at=past)


def reread(notification_id: str) -> Notification:
    return Notification.objects.get(id=notification_id)


def attempts_of(notification_id: str) -> list[DeliveryAttempt]:
    rows = DeliveryAttempt.objects.filter(notification_id=notification_id)
    return list(rows.order_by("number"))


def data_of(notification_id: str) -> dict[str, Any]:
    value = json.loads(bytes(reread(notification_id).content))
    return value["data"]


def events() -> list[tuple[str, str, str]]:
    """(event, destination, state) of every notification, in order."""
    rows = Notification.objects.order_by("id")
    return list(rows.values_list("event", "destination_id", "state"))
