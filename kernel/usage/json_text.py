"""JSON as text: where each member of an object starts and ends, so that nothing is re-encoded."""

import json
import re
from typing import Any, NamedTuple

DUPLICATE = "the same key twice"
MEMBERS_MAX = 10_000
TOO_LONG = "a number of thousands of digits"
_DECODER = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"[ \t\n\r]*+")


class Member(NamedTuple):
    """One member of an object: its decoded key and value, and the span of the value in the text."""

    key: str
    value: Any
    start: int
    end: int


class NotAnInteger(str):
    """A number that is no plain integer (1.5, 1e308, NaN), kept as it was written."""

    __slots__ = ()


def decode_object(text: str) -> dict[str, Any]:
    """The one JSON object that `text` is. ValueError when it is anything else."""
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("the JSON text is nested too deeply") from None
    if type(value) is not dict:
        raise ValueError("not a JSON object")
    return value


def members(text: str) -> list[Member]:
    """The members of the one JSON object that `text` is, in order, repeated keys included.

    ValueError when it is anything else: cut, followed by more, nested too deeply, not an object.
    """
    found: list[Member] = []
    try:
        at = _space(text, 0)
        if text[at] != "{":
            raise ValueError("not a JSON object")
        at = _space(text, at + 1)
        if text[at] == "}":
            at += 1
        else:
            at = _read_members(text, at, found)
    except IndexError:
        raise ValueError("the JSON text ends too early") from None
    except RecursionError:
        raise ValueError("the JSON text is nested too deeply") from None
    if _space(text, at) != len(text):
        raise ValueError("text behind the JSON object")
    return found


def _read_members(text: str, at: int, found: list[Member]) -> int:
    while True:
        key, at = _DECODER.raw_decode(text, at)
        at = _space(text, at)
        if type(key) is not str or text[at] != ":":
            raise ValueError("a key and a colon are missing")
        start = _space(text, at + 1)
        value, end = _DECODER.raw_decode(text, start)
        found.append(Member(key, value, start, end))
        if len(found) > MEMBERS_MAX:
            raise ValueError(f"more than {MEMBERS_MAX} members")
        at = _space(text, end)
        if text[at] == "}":
            return at + 1
        if text[at] != ",":
            raise ValueError("a comma is missing")
        at = _space(text, at + 1)


def exact(text: str) -> Any:
    """Decode JSON without any float: other numbers than plain integers become NotAnInteger.

    ValueError for invalid JSON, deep nesting, a repeated key (the message is DUPLICATE) or a number
    of thousands of digits (the message is TOO_LONG).
    """
    try:
        return _EXACT.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise ValueError(DUPLICATE if str(error) == DUPLICATE else TOO_LONG) from None


def dump(value: object) -> str:
    """Any value as ASCII JSON text; '' when it cannot be written (cycles, depth, odd types)."""
    try:
        return json.dumps(value, skipkeys=True, default=str)
    except (ValueError, TypeError, RecursionError):
        return ""


def clean(text: str, *, limit: int) -> str:
    """Text that every database can store: no NUL, no lone surrogate, at most `limit` characters."""
    cut = text[:limit]
    if cut.isascii() and "\x00" not in cut:
        return cut
    return cut.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _space(text: str, at: int) -> int:
    if text[at : at + 1] > " ":
        return at
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # matches the empty text too


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError(DUPLICATE)
    return values


_EXACT = json.JSONDecoder(
    parse_float=NotAnInteger,
    parse_constant=NotAnInteger,
    object_pairs_hook=_unique,
)
