"""Fingerprints: errors that differ only in ids, numbers and times are one group (F9)."""

import hashlib
import re

CHARS_MAX = 2000
_VARYING = re.compile(
    r"""
    \b[a-z]{2,6}_[0-9a-z]{12,}\b            # our ids
    | \b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b
    | \b\d{4}-\d\d-\d\d([T ][\d:.,]+)?(Z|[+-]\d\d:?\d\d)?
    | \b0x[0-9a-f]+\b
    | \b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b       # digests
    | \d+
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SPACE = re.compile(r"\s+")


def fingerprint(error_text: str) -> str:
    """32 hex digits over the text without what varies from one failure to the next."""
    plain = _VARYING.sub("#", error_text[:CHARS_MAX])
    same = _SPACE.sub(" ", plain).strip().lower()
    return hashlib.sha256(same.encode("utf-8", "replace")).hexdigest()[:32]
