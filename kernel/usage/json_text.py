"""JSON as text: where each member of an object starts and ends, so that nothing is re-encoded."""

import json
import re
from dataclasses import dataclass
from typing import Any

DUPLICATE = "the same key twice"
_DECODER = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"[ \t\n\r]*+")


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object: its decoded key and value, and the span of the value in the text."""

    key: str
    value: Any
    start: int
    end: int


class NotAnInteger(str):
    """A number that is no plain integer (1.5, 1e308, NaN, 40 digits), kept as it was written."""

    __slots__ = ()


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
        at = _space(text, end)
        if text[at] == "}":
            return at + 1
        if text[at] != ",":
            raise ValueError("a comma is missing")
        at = _space(text, at + 1)


def exact(text: str) -> Any:
    """Decode JSON without any float: other numbers than plain integers become NotAnInteger.

    ValueError for invalid JSON, a repeated key (the message is DUPLICATE) or deep nesting.
    """
    try:
        return _EXACT.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dump(value: object) -> str:
    """Any value as ASCII JSON text; '' when it cannot be written (cycles, depth, odd types)."""
    try:
        return json.dumps(value, skipkeys=True, default=str)
    except (ValueError, TypeError, RecursionError):
        return ""


def clean(text: str, *, limit: int) -> str:
    """Text that every database can store: no NUL, no lone surrogate, at most `limit` characters."""
    cut = text[:limit].replace("\x00", "\ufffd")
    return cut.encode("utf-8", "replace").decode()


def _space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # matches the empty text too


def _integer(digits: str) -> int | NotAnInteger:
    return int(digits) if len(digits) <= 19 else NotAnInteger(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError(DUPLICATE)
    return values


_EXACT = json.JSONDecoder(
    parse_float=NotAnInteger,
    parse_constant=NotAnInteger,
    parse_int=_integer,
    object_pairs_hook=_unique,
)
