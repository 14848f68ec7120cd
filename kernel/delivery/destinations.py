"""Destinations: where an account's notifications go, over which channel, for which events (F1, F7).

A destination is never deleted: messages, attempts and dead letters name it. Inactive, it takes
nothing new and what waits for it stays where it is. Closed, it is left alone for a time: by too
many failures in a row, or by a person.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from kernel import audit, clock, outbox, schema
from kernel.delivery.fields import checked_fields
from kernel.errors import Conflict, InvalidInput, NotFound, Unavailable
from kernel.ids import check_id, check_text, new_id
from kernel.models import Account, Destination
from kernel.state.protocol import ENSURE_REPLAY, RuntimeStateStore
from kernel.transactions import insert_new_in_tx, reading, requires_transaction, transaction
from kernel.versions import change_at_version_in_tx

KIND = "destination"
FIELDS = ("address", "sender", "secret_env", "events", "allow_private", "active")
CLOSED_SECONDS_MAX = 30 * 86_400


def create_destination(
    *,
    account_id: str,
    channel: str,
    address: str,
    events: Sequence[str],
    actor: audit.Actor,
    destination_id: str = "",
    sender: str = "",
    secret_env: str = "",
    allow_private: bool = False,
    store: RuntimeStateStore | None = None,
) -> Destination:
    """Add a destination of an account, audited; active at once (L4).

    `channel` is webhook, email, apprise or executor; `address` what it takes: a URL, a mail
    address, an apprise URL, whatever the executor understands. `events` are prefixes of
    `outbox.EVENTS`, by dots. A webhook needs `secret_env`: the environment variable that holds its
    signing secret, or two with a comma while they rotate. `store` is the state store in force, the
    database unless given. InvalidInput names the field; NotFound (account), Conflict
    `destination_exists`. Unavailable without migration 0069, and `capability_missing` for an
    executor over a store without the jobs of the database.
    """
    schema.require(schema.DELIVERY)
    _refuse_executor(channel, destination_id, store)
    values = checked_fields(
        channel,
        {
            "address": address,
            "sender": sender,
            "secret_env": secret_env,
            "events": events,
            "allow_private": allow_private,
            "active": True,
        },
    )
    name = check_id(destination_id or new_id("dst"), field="destination_id")
    return _create(
        destination_id=name, account_id=account_id, channel=channel, values=values, actor=actor
    )


@transaction
def _create(
    *,
    destination_id: str,
    account_id: str,
    channel: str,
    values: Mapping[str, Any],
    actor: audit.Actor,
) -> Destination:
    audit.refuse_repeat_in_tx(actor=actor)
    if not Account.objects.filter(id=account_id).exists():
        raise NotFound(f"no account {account_id}", field="account_id")
    if Destination.objects.filter(id=destination_id).exists():
        raise Conflict(f"The destination {destination_id} exists.", code="destination_exists")
    now = clock.db_now()
    row = Destination(
        id=destination_id,
        account_id=account_id,
        channel=channel,
        created_at=now,
        updated_at=now,
        **values,
    )
    insert_new_in_tx(row)
    audit.append_in_tx(
        actor=actor,
        action="destination.create",
        kind=KIND,
        object_id=row.id,
        after={"account_id": account_id, "channel": channel, **values},
    )
    return row


def change_destination(
    *,
    destination_id: str,
    seen_version: int,
    actor: audit.Actor,
    reason: str = "",
    store: RuntimeStateStore | None = None,
    **fields: Any,
) -> Destination:
    """Change FIELDS of a destination, audited; its version moves on (L4).

    What waits keeps its recipient; secret and policy are those of now. LostRace when it is not at
    `seen_version` any more; InvalidInput, NotFound. Switching one on is refused like adding it.
    """
    schema.require(schema.DELIVERY)
    if fields.get("active"):
        row = get_destination(destination_id=destination_id)
        _refuse_executor("" if row.active else row.channel, destination_id, store)
    unknown = sorted(set(fields) - set(FIELDS))
    if unknown:
        raise InvalidInput(f"a destination has no field {unknown[0]}", field=unknown[0])
    return _change(
        destination_id=destination_id,
        seen_version=seen_version,
        actor=actor,
        reason=reason,
        fields=fields,
    )


@transaction
def _change(
    *,
    destination_id: str,
    seen_version: int,
    actor: audit.Actor,
    reason: str,
    fields: Mapping[str, Any],
) -> Destination:
    audit.refuse_repeat_in_tx(actor=actor)
    row = _locked_in_tx(destination_id)
    before = {**_stored(row), "events": json.loads(row.events_text)}
    del before["events_text"]
    values = checked_fields(row.channel, {**before, **fields})
    stored = _stored(row)
    change_at_version_in_tx(row, seen_version, values)
    audit.append_in_tx(
        actor=actor,
        action="destination.change",
        kind=KIND,
        object_id=row.id,
        before=stored,
        after=values,
        reason=reason,
    )
    return row


@reading
def get_destination(*, destination_id: str, account_id: str = "") -> Destination:
    """One destination. NotFound; of another account too, where one is named."""
    row = Destination.objects.filter(id=destination_id).first()
    if row is None or (account_id and row.account_id != account_id):
        raise NotFound(f"no destination {destination_id}")
    return row


@reading
def list_destinations(*, account_id: str = "") -> list[Destination]:
    """Destinations by account and id; all accounts unless one is named. At most 500."""
    rows = Destination.objects.order_by("account_id", "id")
    return list((rows.filter(account_id=account_id) if account_id else rows)[:500])


@reading
def refuse_executors() -> None:
    """Unavailable `capability_missing` when an active destination sends through an executor.

    For a kernel whose state store does not see the jobs of the database: an executor would never
    get what such a destination takes (F8, M1).
    """
    if not schema.is_applied(schema.DELIVERY):
        return
    found = Destination.objects.filter(channel=outbox.EXECUTOR, active=True).order_by("id")
    ids = list(found.values_list("id", flat=True)[:5])
    if ids:
        raise _no_executors(ids)


def _refuse_executor(channel: str, destination_id: str, store: RuntimeStateStore | None) -> None:
    """The same, when one is made: nobody should learn it at the next start."""
    if store is None or ENSURE_REPLAY in store.capabilities:
        return
    if channel == outbox.EXECUTOR:
        raise _no_executors([destination_id])


def _no_executors(ids: Sequence[str]) -> Unavailable:
    named = f": {list(ids)}" if any(ids) else ""
    return Unavailable(
        f"This state store has no jobs of the database; executors would get nothing{named}.",
        code="capability_missing",
        next_action="Switch these destinations off, or use the database store.",
    )


def send_test(*, destination_id: str, actor: audit.Actor) -> str:
    """Queue a test message for one destination, audited; returns the notification's id (L4).

    It goes the way of every message: signed, tried again, dead in the end. NotFound, Conflict
    `destination_inactive`.
    """
    schema.require(schema.DELIVERY)
    return _send_test(destination_id=destination_id, actor=actor)


@transaction
def _send_test(*, destination_id: str, actor: audit.Actor) -> str:
    audit.refuse_repeat_in_tx(actor=actor)
    row = Destination.objects.filter(id=destination_id).first()
    if row is None:
        raise NotFound(f"no destination {destination_id}")
    (notification_id,) = outbox.publish_in_tx(
        account_id=row.account_id,
        event=outbox.MESSAGE,
        data={"subject": "A test message", "text": "If you can read this, it arrived."},
        destination_id=row.id,
    )
    audit.append_in_tx(
        actor=actor,
        action="destination.test",
        kind=KIND,
        object_id=row.id,
        after={"notification_id": notification_id},
    )
    return notification_id


def close_destination(
    *, destination_id: str, actor: audit.Actor, reason: str, seconds: int = 3600
) -> Destination:
    """Leave a destination alone for `seconds`, audited; attempts are not used up (F2).

    Then one probe is sent, as after failures. InvalidInput (reason, seconds), NotFound.
    """
    schema.require(schema.DELIVERY)
    check_text(reason, field="reason", chars_max=1000)
    if type(seconds) is not int or not 1 <= seconds <= CLOSED_SECONDS_MAX:
        raise InvalidInput(f"seconds is a number from 1 to {CLOSED_SECONDS_MAX}", field="seconds")
    return _set_closed(
        destination_id=destination_id, actor=actor, reason=reason, action="close", seconds=seconds
    )


def open_destination(*, destination_id: str, actor: audit.Actor, reason: str = "") -> Destination:
    """Send to a closed destination again, now; its failures are forgotten, audited (F2).

    NotFound.
    """
    schema.require(schema.DELIVERY)
    return _set_closed(destination_id=destination_id, actor=actor, reason=reason, action="open")


@transaction
def _set_closed(
    *, destination_id: str, actor: audit.Actor, reason: str, action: str, seconds: int = 0
) -> Destination:
    audit.refuse_repeat_in_tx(actor=actor)
    row = _locked_in_tx(destination_id)
    now = clock.db_now()
    until = now + timedelta(seconds=seconds) if action == "close" else None
    failures = row.failures if action == "close" else 0
    Destination.objects.filter(id=row.id).update(
        closed_until_at=until, failures=failures, updated_at=now
    )
    audit.append_in_tx(
        actor=actor,
        action=f"destination.{action}",
        kind=KIND,
        object_id=row.id,
        before={"failures": row.failures, "closed_until_at": row.closed_until_at},
        after={"failures": failures, "closed_until_at": until},
        reason=reason,
    )
    return Destination.objects.get(id=row.id)


@requires_transaction
def _locked_in_tx(destination_id: str) -> Destination:
    row = Destination.objects.select_for_update().filter(id=destination_id).first()
    if row is None:
        raise NotFound(f"no destination {destination_id}")
    return row


def _stored(row: Destination) -> dict[str, Any]:
    names = ("address", "sender", "secret_env", "events_text", "allow_private", "active")
    values = {name: getattr(row, name) for name in names}
    if row.channel == "apprise":  # such a URL carries credentials; the trail is read by many
        digest = hashlib.sha256(row.address.encode()).hexdigest()[:8]
        values["address"] = f"{row.address.partition(':')[0]}: (sha256 {digest})"
    return values
