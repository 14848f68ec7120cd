"""What must be true of notifications after every case: from the receiver's file and plain SQL (K3).

A message arrives again only where an attempt was refused by the receiver, or where its outcome was
unknown and is shown as such.
"""

import base64
import hashlib
import hmac
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.support.provider import ProviderCall

if TYPE_CHECKING:
    from tests.support.house import House

SECRET_ENV = "TEST_HOOK_SECRET"
KEY = b"a-secret-of-the-receiver-01"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
Line = list[dict[str, Any]]  # a notification and its replays: one message to its receiver


def broken(house: "House") -> Iterator[str]:
    """Every promise about messages that does not hold, as a sentence."""
    if house.receiver is None:
        return
    lines = _lines(house)
    arrived = defaultdict(list)
    for call in house.receiver.sent(house.receiver_path):
        arrived[call.headers.get("webhook-id", "")].append(call)
    for message_id in arrived:
        if message_id not in lines:
            yield f"the receiver got {message_id}, which nobody published"
    for message_id, line in lines.items():
        yield from _of_message(house, message_id, line, arrived[message_id])


def _lines(house: "House") -> dict[str, Line]:
    """The notifications of webhooks, those that replay another one under its id."""
    letters = house.rows("SELECT id, notification_id FROM bz_delivery_dlq")
    original = {row["id"]: row["notification_id"] for row in letters}
    rows = house.rows("SELECT * FROM bz_notifications WHERE channel = 'webhook'")
    by_id = {row["id"]: row for row in rows}
    found: dict[str, Line] = defaultdict(list)
    for row in rows:
        first = row
        while first["replay_of_id"]:
            first = by_id[original[first["replay_of_id"]]]
        found[first["id"]].append(row)
    return found


def _of_message(
    house: "House", message_id: str, line: Line, calls: list[ProviderCall]
) -> Iterator[str]:
    attempts = [
        row["outcome"]
        for each in line
        for row in house.rows(
            "SELECT outcome FROM bz_delivery_attempts WHERE notification_id = %s", each["id"]
        )
    ]
    running = sum(row["state"] == "sending" for row in line)
    delivered, unknown = attempts.count("delivered"), attempts.count("unknown")
    taken = sum(not call.behaviour.startswith("status_") for call in calls)
    if taken > delivered + unknown + running:
        yield f"{message_id} was taken {taken} times; {delivered} delivered, {unknown} unknown"
    if len(calls) > taken + attempts.count("refused") + unknown + running:
        yield f"{message_id} arrived {len(calls)} times; its attempts: {attempts}"
    if taken < delivered:
        yield f"{message_id} is delivered {delivered} times and arrived {taken} times"
    shown = sum(row["unknown_attempts"] for row in line)
    if shown != unknown:
        yield f"{message_id} may have arrived {unknown} times more, and shows {shown}"
    content = bytes(line[0]["content"])
    for call in calls:
        if call.body.encode() != content:
            yield f"{message_id} arrived with other bytes than are kept"
        if call.headers.get("webhook-signature") != _signature(message_id, call):
            yield f"{message_id} arrived with another signature than its own"


def _signature(message_id: str, call: ProviderCall) -> str:
    signed = f"{message_id}.{call.headers['webhook-timestamp']}.{call.body}".encode()
    return "v1," + base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
