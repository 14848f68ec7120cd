"""JSON that passes through: stored text goes out as it is, and came in as it was written (D5).

No number changes on its way: a parser would read 0.10 and 1e400 as floats and write others.
"""

import json
import re
import secrets
from dataclasses import dataclass
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from kernel.errors import InvalidInput
from kernel.usage.json_text import members


@dataclass(frozen=True, slots=True)
class AsWritten:
    """JSON text that stands in a document as the value it is."""

    text: str


def stored(text: str) -> Any:
    """Stored JSON for a document; text that is none stays text. None for nothing."""
    try:
        json.loads(text or "null")
    except (ValueError, RecursionError):
        return text
    return AsWritten(text) if text else None


def document_text(document: dict[str, Any]) -> str:
    """The JSON text of a document, with every AsWritten in its place."""
    mark, kept = secrets.token_hex(16), []

    def keep(value: Any) -> Any:
        if not isinstance(value, AsWritten):
            return DjangoJSONEncoder().default(value)
        kept.append(value.text)
        return f"{mark}{len(kept) - 1}"

    text = json.dumps(document, default=keep)
    return re.sub(rf'"{mark}(\d+)"', lambda found: kept[int(found[1])], text)


def member_text(body: bytes, name: str) -> str:
    """The caller's own text of one member of the body, '' when it is not there. InvalidInput."""
    try:
        text = body.decode()
        found = [member for member in members(text) if member.key == name]
    except ValueError as error:
        raise InvalidInput(f"the body must be JSON in UTF-8: {error}", field="body") from None
    if len(found) > 1:
        raise InvalidInput(f"{name} is given twice", field=name)
    return text[found[0].start : found[0].end] if found else ""
