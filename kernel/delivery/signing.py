"""Signatures of messages, as Standard Webhooks has them: three headers, HMAC-SHA256, raw bytes.

    webhook-id          names the message; the same for every attempt
    webhook-timestamp   when this attempt was signed, in whole seconds since 1970, UTC
    webhook-signature   v1,<base64>, one per secret, with one space between them

What is signed is `<id>.<timestamp>.<body>`, so an id has no dot. A secret is `whsec_<base64>`, and
the key is what the base64 stands for; any other text is the key itself, as UTF-8. Everything here
is a calculation: no clock, no rows, no environment.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kernel.errors import Unauthorized

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
HEADERS = (ID, TIMESTAMP, SIGNATURE)
PREFIX = "whsec_"
SECRETS_MAX = 2  # more than two are never active: the one in use and the one to come
KEY_BYTES_MIN = 16
SIGNATURES_MAX = 8

_ID = re.compile(r"[A-Za-z0-9_:-]{1,128}", re.ASCII)
# No sign, no point, no underscore, no leading zero; twelve digits outlive every calendar.
_TIMESTAMP = re.compile(r"[1-9][0-9]{0,11}", re.ASCII)
_SIGNATURE = re.compile(r"(v[0-9]{1,2}[a-z]?),([A-Za-z0-9+/]{1,200}={0,2})", re.ASCII)
WAY_OUT = (
    "Sign the exact bytes of the body as Standard Webhooks says, with a secret of the approval's"
    " account, and send webhook-id, webhook-timestamp and webhook-signature."
)


@dataclass(frozen=True, slots=True)
class Proof:
    """A message whose signature fits: its id, when it was signed, and which secret it was."""

    message_id: str
    signed_at: datetime
    secret_index: int


def sign(
    *, message_id: str, signed_at: datetime, body: bytes, secrets: Sequence[str]
) -> dict[str, str]:
    """The three headers of one attempt. `signed_at` is the attempt's own time, in any zone.

    One or two secrets; while they rotate both sign, so that either side may change first.
    ValueError for a naive time, a time before 1970, a wrong id, or secrets that are no keys.
    """
    if signed_at.tzinfo is None:
        raise ValueError("a time without a zone would be signed as another one")
    if not _ID.fullmatch(message_id):
        raise ValueError("a message id is 1-128 characters of A-Z a-z 0-9 _ : -, without a dot")
    keys = [key_of(secret) for secret in secrets]
    if not 1 <= len(keys) <= SECRETS_MAX or None in keys:
        raise ValueError("a message is signed with one or two secrets of 16 bytes or more")
    timestamp = str(int(signed_at.astimezone(UTC).timestamp()))
    if not _TIMESTAMP.fullmatch(timestamp):
        raise ValueError("a message is signed after 1970")
    digests = [_digest(key, message_id, timestamp, body) for key in keys if key is not None]
    signatures = " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return {ID: message_id, TIMESTAMP: timestamp, SIGNATURE: signatures}


def verify(
    *,
    headers: Mapping[str, str],
    body: bytes,
    secrets: Sequence[str],
    now: datetime,
    tolerance_seconds: float,
) -> Proof:
    """The proof that one of `secrets` signed exactly these bytes, close to `now` both ways.

    `headers` has names in lower case; a header that came twice, joined by a comma, fits nothing.
    Every secret is tried against every signature in the same time. Unauthorized, and never another
    error, for whatever else arrives. Secrets that are no keys count as absent.
    """
    message_id = headers.get(ID, "")
    timestamp = headers.get(TIMESTAMP, "")
    given = _signatures(headers.get(SIGNATURE, ""))
    if not _ID.fullmatch(message_id) or not _TIMESTAMP.fullmatch(timestamp) or not given:
        raise Unauthorized("The signature headers cannot be read.", next_action=WAY_OUT)
    if abs(now.timestamp() - int(timestamp)) > tolerance_seconds:
        raise Unauthorized(
            "The message was signed too long ago, or in the future.",
            next_action=f"Sign each attempt anew, in seconds, within {tolerance_seconds:g} s.",
        )
    found = -1
    for index, secret in enumerate(secrets):
        key = key_of(secret)
        if key is None:
            continue
        expected = _digest(key, message_id, timestamp, body)
        for signature in given:
            if hmac.compare_digest(expected, signature) and found < 0:
                found = index
    if found < 0:
        raise Unauthorized("The signature fits no secret of this account.", next_action=WAY_OUT)
    return Proof(message_id, datetime.fromtimestamp(int(timestamp), UTC), found)


def key_of(secret: str) -> bytes | None:
    """The key a secret stands for. None when it is shorter than 16 bytes, or `whsec_` is broken."""
    text = secret.strip()
    try:
        if text.startswith(PREFIX):
            key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        else:
            key = text.encode()
    except (binascii.Error, ValueError):
        return None
    return key if len(key) >= KEY_BYTES_MIN else None


def _digest(key: bytes, message_id: str, timestamp: str, body: bytes) -> bytes:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return hmac.new(key, signed, hashlib.sha256).digest()


def _signatures(text: str) -> list[bytes]:
    """The v1 signatures of a header; [] when any part of it cannot be read.

    Versions of others are left out, so that a sender may add a newer one.
    """
    parts = text.split(" ")
    if len(parts) > SIGNATURES_MAX:
        return []
    found = []
    for part in parts:
        match = _SIGNATURE.fullmatch(part)
        if match is None:
            return []
        if match[1] == "v1":
            try:
                found.append(base64.b64decode(match[2], validate=True))
            except (binascii.Error, ValueError):
                return []
    return found
