"""Audit rows as JSON lines: what exports, the JSONL copy and the heads file hold (M2)."""

import json
from typing import Any

from kernel.models import AuditRow

FIELDS = (
    "id",
    "subject",
    "sequence",
    "actor_kind",
    "actor_id",
    "action",
    "before_text",
    "after_text",
    "reason",
    "request_id",
    "act_key",
    "previous_sha256",
    "sha256",
)


def values_of(row: AuditRow) -> dict[str, Any]:
    """Every field of a row: enough to hash it again without the database."""
    values = {name: getattr(row, name) for name in FIELDS}
    return {"at": row.at.isoformat(timespec="microseconds"), **values}


def line_of(row: AuditRow) -> bytes:
    """One line, in ASCII."""
    return json.dumps(values_of(row), separators=(",", ":")).encode() + b"\n"
