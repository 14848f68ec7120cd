"""Claims: due notifications taken under a token and a lease, fairly between destinations (F1).

One that hangs holds nobody else up: each destination has its own slots, and its own walk along one
index. A closed destination costs no attempts.

Lock order: notifications, then the destination that is probed.
"""

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from kernel import clock, schema, sql
from kernel.conf import conf
from kernel.delivery.lookup import message_id_of
from kernel.errors import RetryTransaction, Unavailable
from kernel.ids import check_id
from kernel.models import Destination, Notification
from kernel.states import NotificationState
from kernel.transactions import reading, requires_transaction, transaction

# One step into one index per destination; EXISTS would become a list of all that is due.
HAS_DUE = (
    "AND (SELECT n.id FROM bz_notifications n WHERE n.destination_id = bz_destinations.id"
    " AND n.state = %s AND n.due_at <= %s ORDER BY n.due_at, n.id LIMIT 1) IS NOT NULL"
)
TAKE = (
    "UPDATE bz_notifications SET state = %s, owner = %s, fence_token = %s, lease_expires_at = %s,"
    " updated_at = %s WHERE id IN ({marks}) AND state = %s"
)


@dataclass(frozen=True, slots=True)
class Claimed:
    """One notification under a claim, with all that sending takes. `number` is the attempt's.

    `first_id` names the notification that a replay repeats: receivers know the message by its id.
    """

    id: str
    kind: str
    channel: str
    event: str
    recipient: str
    sender: str
    content: bytes
    content_type: str
    destination_id: str
    secret_env: str
    allow_private: bool
    number: int
    owner: str
    fence_token: str
    started_at: datetime
    is_probe: bool = False
    first_id: str = ""

    @property
    def message_id(self) -> str:
        """The same for every attempt and every replay, so that a receiver can tell a duplicate."""
        return self.first_id or self.id


def claim(*, owner: str, limit: int, busy: Mapping[str, int]) -> list[Claimed]:
    """Take up to `limit` due notifications, each under a fresh token and lease (F1).

    `busy` counts the attempts that this process runs per destination: none gets more than
    `destination_slots_count_max` at once, so that one that hangs holds nobody else up; within a
    destination the oldest due come first. A closed destination is left alone; when its time is over
    one process takes one message as a probe. Asks without a transaction whether there is anything.
    [] while migration 0069 is absent.
    """
    try:
        schema.require(schema.DELIVERY)
    except Unavailable:
        return []
    check_id(owner, field="owner")
    places = _places(busy=busy) if limit > 0 else []
    if not places:
        return []
    return _claim(owner=owner, limit=limit, places=places)


@dataclass(frozen=True, slots=True)
class _Place:
    """A destination with something due, and how many messages of it may be taken."""

    destination_id: str
    free: int
    secret_env: str = ""
    allow_private: bool = False
    probe_at: datetime | None = None


@reading
def _places(*, busy: Mapping[str, int]) -> list[_Place]:
    """Where something is due and a slot is free: the least busy first, of equals any.

    Senders that look at once so begin at different places. Notifications without a destination
    count as one.
    """
    now = clock.db_now()
    slots = conf.destination_slots_count_max
    found = []
    for row_id, secret_env, allow_private, closed_until_at in sql.values(
        Destination,
        ("id", "secret_env", "allow_private", "closed_until_at"),
        {"active": True},
        more=HAS_DUE,
        parameters=[NotificationState.QUEUED, now],
    ):
        free = slots - busy.get(row_id, 0)
        if closed_until_at is not None:
            free = 1 if closed_until_at <= now and not busy.get(row_id) else 0
        if free > 0:
            found.append(_Place(row_id, free, secret_env, allow_private, closed_until_at))
    if (free := slots - busy.get("", 0)) > 0 and _due_in(
        destination_id="", now=now, limit=1, columns=("id",)
    ):
        found.append(_Place("", free))
    return sorted(found, key=lambda place: (busy.get(place.destination_id, 0), random.random()))


def _due_in(
    *, destination_id: str, now: datetime, limit: int, columns: tuple[str, ...] = (), lock: str = ""
) -> list[Notification]:
    """The oldest due ones of a destination: one index serves filter and order."""
    return sql.rows(
        Notification,
        {"destination_id": destination_id, "state": NotificationState.QUEUED},
        more="AND due_at <= %s ORDER BY due_at, id LIMIT %s",
        parameters=[now, limit],
        columns=columns,
        lock=lock,
    )


@transaction
def _claim(*, owner: str, limit: int, places: list[_Place]) -> list[Claimed]:
    now = clock.db_now()
    picked: list[tuple[Notification, _Place]] = []
    share = max(1, limit // len(places))  # a few of each, not all slots of the first ones
    for place in places:
        if len(picked) >= limit:
            break
        free = min(place.free, share, limit - len(picked))
        picked += [(row, place) for row in _pick_in_tx(place, limit=free, now=now)]
    if not picked:
        return []
    token = os.urandom(16).hex()
    lease = now + timedelta(seconds=conf.notification_lease_seconds)
    taken = sql.execute_in_tx(
        TAKE.format(marks=sql.marks(len(picked))),
        [
            *(NotificationState.SENDING, owner, token, lease, now),
            *(row.id for row, _ in picked),
            NotificationState.QUEUED,
        ],
    )
    if taken != len(picked):
        raise RetryTransaction("a candidate was taken meanwhile")
    return [_claimed(row, place, owner=owner, token=token, now=now) for row, place in picked]


@requires_transaction
def _pick_in_tx(place: _Place, *, limit: int, now: datetime) -> list[Notification]:
    """Candidates, locked: what others hold is skipped, not waited for; the update decides."""
    rows = _due_in(destination_id=place.destination_id, now=now, limit=limit, lock=sql.SKIP)
    if rows and place.probe_at is not None and not _take_probe_in_tx(place, now=now):
        return []
    return rows


@requires_transaction
def _take_probe_in_tx(place: _Place, *, now: datetime) -> bool:
    """One process sends the one probe: whoever moves the time on."""
    until = now + timedelta(seconds=conf.notification_lease_seconds)
    row = Destination.objects.filter(id=place.destination_id, closed_until_at=place.probe_at)
    return row.update(closed_until_at=until, updated_at=now) == 1


def _claimed(row: Notification, place: _Place, *, owner: str, token: str, now: datetime) -> Claimed:
    return Claimed(
        id=row.id,
        kind=row.kind,
        channel=row.channel,
        event=row.event,
        recipient=row.recipient,
        sender=row.sender,
        content=bytes(row.content),
        content_type=row.content_type,
        destination_id=row.destination_id,
        secret_env=place.secret_env,
        allow_private=place.allow_private,
        number=row.attempts + 1,
        owner=owner,
        fence_token=token,
        started_at=now,
        is_probe=place.probe_at is not None,
        first_id=message_id_of(notification_id=row.id, replay_of_id=row.replay_of_id),
    )
