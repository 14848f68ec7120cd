"""The demo's business service: refunds, once per key, and an inbox. In memory, in the demo process.

`POST /refunds` with `Idempotency-Key` makes a refund; the same key gets the same answer and no
second refund. `GET /refunds` lists them. That is what a real business service owes to its callers:
this product promises no exactly-once effect, the receiver's own idempotency does (D3).

`POST /inbox` takes notifications, once per `webhook-id`. It is closed at first and answers 410, so
that a dead letter can be made and replayed: `PUT /inbox` opens it. `GET /inbox` lists them.
"""

import hashlib
import json
from typing import Any

KEYS_MAX = 10_000
Reply = tuple[int, dict[str, Any]]


class Refunds:
    """The refunds of one process, by idempotency key, in the order they were made."""

    def __init__(self) -> None:
        self._by_key: dict[str, tuple[str, dict[str, Any]]] = {}

    def make(self, *, key: str, body: bytes) -> Reply:
        """One refund: 201, or 200 with the first answer for a known key. 400, 422 say why not."""
        if not key:
            return _refused(400, "send an Idempotency-Key")
        sha256 = hashlib.sha256(body).hexdigest()
        known = self._by_key.get(key)
        if known is not None:
            if known[0] != sha256:
                return _refused(422, "this Idempotency-Key belongs to another refund")
            return 200, known[1]
        try:
            asked = json.loads(body)
        except ValueError:
            return _refused(400, "the body is not JSON")
        why = _wrong(asked)
        if why:
            return _refused(422, why)
        if len(self._by_key) >= KEYS_MAX:
            return _refused(422, "the demo keeps no more refunds")
        refund = {
            "refund_id": f"rf-{len(self._by_key) + 1}",
            "status": "refunded",
            "order_id": asked["order_id"],
            "amount": asked["amount"],
            "currency": asked["currency"],
        }
        self._by_key[key] = (sha256, refund)
        return 201, refund

    def listed(self) -> Reply:
        """All refunds with the keys they came under."""
        rows = [{**refund, "idempotency_key": key} for key, (_, refund) in self._by_key.items()]
        return 200, {"refunds": rows}


class Inbox:
    """The notifications of one process, by their id; nothing is taken before it is opened."""

    def __init__(self) -> None:
        self.is_open = False
        self._by_id: dict[str, str] = {}

    def take(self, *, message_id: str, body: bytes) -> Reply:
        """One notification: 200 for a new one and for a repeat; 410 while the inbox is closed."""
        if not self.is_open:
            return _refused(410, "the demo's inbox is closed; PUT /inbox opens it")
        if not message_id:
            return _refused(400, "send a webhook-id")
        if message_id not in self._by_id and len(self._by_id) >= KEYS_MAX:
            return _refused(422, "the demo keeps no more messages")
        self._by_id.setdefault(message_id, body.decode("utf-8", "replace"))
        return 200, {"status": "taken"}

    def open(self) -> Reply:
        """Take notifications from now on."""
        self.is_open = True
        return self.listed()

    def listed(self) -> Reply:
        """What was taken, with the id it came under."""
        rows = [{"webhook_id": name, "body": body} for name, body in self._by_id.items()]
        return 200, {"open": self.is_open, "messages": rows}


def _wrong(asked: Any) -> str:
    if type(asked) is not dict:
        return "a refund is a JSON object"
    for name in ("order_id", "currency"):
        if type(asked.get(name)) is not str or not asked[name]:
            return f"{name} must be text"
    if type(asked.get("amount")) not in (int, float) or asked["amount"] <= 0:
        return "amount must be a number above 0"
    return ""


def _refused(status: int, text: str) -> Reply:
    return status, {"error": text}
