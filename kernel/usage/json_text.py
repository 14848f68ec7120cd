"""JSON as text: where each member of an object starts and ends, so that nothing is re-encoded."""

import json
import math
import re
from typing import Any, NamedTuple

DUPLICATE = "the same key twice"
MEMBERS_MAX = 10_000
TOO_LONG = "a number of thousands of digits"
_DECODER = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"[ \t\n\r]*+")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


class Member(NamedTuple):
    """One member of an object: its decoded key and value, and the span of the value in the text."""

    key: str
    value: Any
    start: int
    end: int


class NotAnInteger(str):
    """A number that is no plain integer (1.5, 1e308, NaN), kept as it was written."""

    __slots__ = ()


class NotFinite(ValueError):
    """A number that JSON does not have (NaN, Infinity) or that no float can hold (1e999).

    `path` says where it stands, such as `tools[0].strict`.
    """

    def __init__(self, literal: str, path: str = "") -> None:
        super().__init__(f"{literal[:40]} is no number in JSON")
        self.path = path


def has_more_values(raw: bytes, *, most: int) -> bool:
    """Whether JSON text has more than `most` values, told without decoding it.

    Decoding millions of tiny values holds the interpreter for seconds. Each value but the outermost
    has a comma or an opening bracket before it, and these are counted (an empty list counts twice);
    what stands inside strings does not count.
    """
    if len(raw) <= most or _marks(raw, 0, len(raw)) <= most:
        return False
    count = at = 0
    for strings, string in enumerate(_STRING.finditer(raw), start=1):
        count += _marks(raw, at, string.start())
        # A value comes with one key at most, so more strings than that are no JSON either.
        if count > most or strings > 2 * most + 2:
            return True
        at = string.end()
    return count + _marks(raw, at, len(raw)) > most


def _marks(raw: bytes, start: int, end: int) -> int:
    found = raw.count(b",", start, end) + raw.count(b"[", start, end)
    return found + raw.count(b"{", start, end)


def decode_object(text: str) -> dict[str, Any]:
    """The one JSON object that `text` is. ValueError when it is anything else."""
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("the JSON text is nested too deeply") from None
    if type(value) is not dict:
        raise ValueError("not a JSON object")
    return value


def members(text: str, *, finite: bool = False) -> list[Member]:
    """The members of the one JSON object that `text` is, in order, repeated keys included.

    ValueError when it is anything else: cut, followed by more, nested too deeply, not an object.
    With `finite` NotFinite for a number that JSON does not have.
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
            at = _read_members(text, at, found, _FINITE if finite else _DECODER)
    except IndexError:
        raise ValueError("the JSON text ends too early") from None
    except RecursionError:
        raise ValueError("the JSON text is nested too deeply") from None
    if _space(text, at) != len(text):
        raise ValueError("text behind the JSON object")
    return found


def _read_members(text: str, at: int, found: list[Member], decoder: json.JSONDecoder) -> int:
    while True:
        key, at = _DECODER.raw_decode(text, at)
        at = _space(text, at)
        if type(key) is not str or text[at] != ":":
            raise ValueError("a key and a colon are missing")
        start = _space(text, at + 1)
        try:
            value, end = decoder.raw_decode(text, start)
        except NotFinite as error:
            error.path = _path_to_mark(key, _MARKING.raw_decode(text, start)[0])
            raise
        found.append(Member(key, value, start, end))
        if len(found) > MEMBERS_MAX:
            raise ValueError(f"more than {MEMBERS_MAX} members")
        at = _space(text, end)
        if text[at] == "}":
            return at + 1
        if text[at] != ",":
            raise ValueError("a comma is missing")
        at = _space(text, at + 1)


def _path_to_mark(key: str, value: Any) -> str:
    """Where the first NotAnInteger stands; the key alone when a repeated key has hidden it."""
    left = [(key, value)]
    while left:
        path, value = left.pop()
        if type(value) is NotAnInteger:
            return path
        if type(value) is dict:
            left += [(f"{path}.{name}", value[name]) for name in reversed(value)]
        elif type(value) is list:
            left += [(f"{path}[{index}]", value[index]) for index in reversed(range(len(value)))]
    return key


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


def _refuse(literal: str) -> Any:
    raise NotFinite(literal)


def _finite(literal: str) -> float:
    value = float(literal)
    return value if math.isfinite(value) else _refuse(literal)


def _marked(literal: str) -> Any:
    value = float(literal)
    return value if math.isfinite(value) else NotAnInteger(literal)


_FINITE = json.JSONDecoder(strict=False, parse_constant=_refuse, parse_float=_finite)
_MARKING = json.JSONDecoder(strict=False, parse_constant=NotAnInteger, parse_float=_marked)
_EXACT = json.JSONDecoder(
    parse_float=NotAnInteger,
    parse_constant=NotAnInteger,
    object_pairs_hook=_unique,
)
