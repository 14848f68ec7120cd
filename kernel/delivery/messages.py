"""Messages: an application sends something to a destination of its account, once per id (F1)."""

import hashlib
import json
from typing import Any

from django.db import IntegrityError

from kernel import audit, outbox, schema
from kernel.errors import Conflict, RetryTransaction
from kernel.ids import check_id
from kernel.models import Notification
from kernel.transactions import transaction


def send_message(
    *,
    account_id: str,
    message_id: str,
    destination_id: str,
    data: dict[str, Any],
    actor: audit.Actor,
) -> tuple[Notification, bool]:
    """The notification of (account, message id), and whether it was queued just now; audited (F1).

    A repeat finds its notification, whatever became of the destination since. InvalidId,
    InvalidInput (data), NotFound (destination), Conflict `message_conflict` (the id belongs to
    another content or destination) and `destination_inactive`; Unavailable without 0069.
    """
    schema.require(schema.DELIVERY)
    check_id(message_id, field="message_id")
    check_id(destination_id, field="destination")
    return _send(
        account_id=account_id,
        message_id=message_id,
        destination_id=destination_id,
        data=data,
        actor=actor,
    )


def notification_id_of(*, account_id: str, message_id: str) -> str:
    """The id of the notification of a message: the unique key of its one admission."""
    identity = f"{len(account_id)}:{account_id}:{message_id}"
    return f"ntf_{hashlib.sha256(identity.encode()).hexdigest()[:40]}"


@transaction
def _send(
    *,
    account_id: str,
    message_id: str,
    destination_id: str,
    data: dict[str, Any],
    actor: audit.Actor,
) -> tuple[Notification, bool]:
    name = notification_id_of(account_id=account_id, message_id=message_id)
    found = Notification.objects.filter(id=name).first()
    if found is not None:
        if found.destination_id != destination_id or not _is_same(found, data):
            raise Conflict(
                f"The message id {message_id} belongs to another message.",
                code="message_conflict",
                next_action="Repeat the first message unchanged, or choose another message id.",
                notification_id=name,
            )
        return found, False
    try:
        outbox.publish_in_tx(
            account_id=account_id,
            event=outbox.MESSAGE,
            data=data,
            request_id=message_id,
            destination_id=destination_id,
            notification_id=name,
        )
    except IntegrityError as error:  # the same message came twice at once: find the other
        raise RetryTransaction("a message met its repeat") from error
    audit.append_in_tx(
        actor=actor,
        action="notification.send",
        kind="notification",
        object_id=name,
        after={
            "account_id": account_id,
            "message_id": message_id,
            "destination_id": destination_id,
        },
    )
    return Notification.objects.get(id=name), True


def _is_same(row: Notification, data: dict[str, Any]) -> bool:
    """By text: 1, 1.0 and true are three values."""
    sent = json.loads(bytes(row.content))["data"]
    try:
        return json.dumps(sent, sort_keys=True) == json.dumps(data, sort_keys=True)
    except (ValueError, TypeError, RecursionError):
        return False
