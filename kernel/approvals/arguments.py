"""Arguments of a tool call as one canonical text: parsed strictly, hashed, compared, masked (C1).

Pure. The canonical text is what is stored, shown, hashed and executed. Keys stand in code-point
order, nothing is escaped that JSON does not demand, numbers stay exactly as they were written: 25
is not "25", and 1.0 is not 1.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from kernel.approvals import json_schema
from kernel.conf import conf
from kernel.errors import InvalidInput

VERSION = 1  # of the canonical text; stored with every approval
FIELD = "arguments"
NUMBER_CHARS_MAX = 400
EFFECT_VALUE_CHARS_MAX = 200
SECRET_WORDS = ("authorization", "password", "secret", "token", "api_key", "apikey", "cookie")
PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_.-]{1,128})\}")
PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_ABSENT = object()


class Number(str):
    """A JSON number as it was written. A text of the same characters is another type."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Canonical:
    """The one text of some arguments, its sha256 (hex) and the version of these rules."""

    text: str
    sha256: str
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Change:
    """One place that differs. `before` and `after` are JSON texts; None = not there."""

    path: str
    before: str | None
    after: str | None


def canonical(value_or_text: Any) -> Canonical:
    """The canonical form of JSON text (str, bytes) or of plain Python values (C1).

    InvalidInput (`arguments`) for what is no strict JSON: a repeated key, NaN, a lone surrogate,
    NUL, more than `arguments_depth_count_max` levels or `arguments_bytes_max` bytes.
    """
    if not isinstance(value_or_text, str | bytes):
        try:
            value_or_text = json.dumps(value_or_text, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            _refuse("arguments cannot be written as JSON")
    return _canonical_of(parse(value_or_text))


def final_arguments(*, schema_text: str, given_text: str) -> Canonical:
    """The arguments that a call would be made with: defaults filled in, then validated (C1).

    Missing (an empty text), `null` and `{}` are three things; only the last is "no arguments".
    InvalidInput: see `canonical`; or a path such as `arguments.amount` that does not fit.
    """
    if not given_text.strip():
        _refuse("arguments are missing; send {} for none")
    schema = parse(schema_text, field="parameters")
    final = _with_defaults(schema, parse(given_text))
    json_schema.validate(_plain(schema), _plain(final), field=FIELD)
    return _canonical_of(final)


def canonical_text(text: str, *, field: str, bytes_max: int) -> str:
    """The one text of any strict JSON: keys in order, every number as written. InvalidInput."""
    return _text_of(parse(text, field=field, bytes_max=bytes_max))


def parse(text: str | bytes, *, field: str = FIELD, bytes_max: int | None = None) -> Any:
    """Strict JSON as dicts, lists, str, bool, None and Number. InvalidInput, see `canonical`."""
    bytes_max = conf.arguments_bytes_max if bytes_max is None else bytes_max
    try:
        text = text.decode() if isinstance(text, bytes) else text
        size = len(text.encode())
    except UnicodeError:
        _refuse(f"{field} must be valid UTF-8", field)
    if size > bytes_max:
        _refuse(f"{field} has {size} bytes; {bytes_max} are allowed", field)
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        _refuse(f"{field} is nested deeper than {conf.arguments_depth_count_max} levels", field)
    except ValueError as error:
        _refuse(f"{field} is not strict JSON: {error}", field)
    _check(value, field, 1)
    return value


def difference(before_text: str, after_text: str) -> list[Change]:
    """Where two argument texts differ, in key order. Secrets are compared and shown masked."""
    return list(_changes("", _for_eyes(before_text), _for_eyes(after_text)))


def masked(text: str) -> str:
    """The canonical text for eyes: the values of secret keys are replaced by length and digest.

    Every view, notice, export and log takes this; the real text goes to the tool alone. The short
    digest tells two secrets apart. A text that cannot be read is masked as a whole.
    """
    return _text_of(_for_eyes(text))


def effect_sentence(template: str, arguments_text: str) -> str:
    """The tool's sentence with `{name}` replaced by that argument: masked, long values cut."""
    values = _for_eyes(arguments_text)

    def spoken(match: re.Match[str]) -> str:
        value = values.get(match[1], _ABSENT) if isinstance(values, dict) else _ABSENT
        if value is _ABSENT:
            return "(none)"
        text = value if isinstance(value, str) else _text_of(value)
        return text if len(text) <= EFFECT_VALUE_CHARS_MAX else text[:EFFECT_VALUE_CHARS_MAX] + "…"

    return PLACEHOLDER.sub(spoken, template)


def _canonical_of(value: Any) -> Canonical:
    text = _text_of(value)
    raw = text.encode()
    if len(raw) > conf.arguments_bytes_max:  # defaults may have made it longer
        _refuse(f"{FIELD} has {len(raw)} bytes; {conf.arguments_bytes_max} are allowed")
    return Canonical(text, hashlib.sha256(raw).hexdigest())


def _text_of(value: Any) -> str:
    pieces: list[str] = []
    _write(value, pieces)
    return "".join(pieces)


def _write(value: Any, pieces: list[str]) -> None:
    if isinstance(value, dict):
        pieces.append("{")
        for place, key in enumerate(sorted(value)):  # code points, on every host
            pieces.append("," if place else "")
            pieces.append(json.dumps(key, ensure_ascii=False) + ":")
            _write(value[key], pieces)
        pieces.append("}")
    elif isinstance(value, list):
        pieces.append("[")
        for place, each in enumerate(value):
            pieces.append("," if place else "")
            _write(each, pieces)
        pieces.append("]")
    elif isinstance(value, Number):
        pieces.append(value)
    else:
        pieces.append(json.dumps(value, ensure_ascii=False))


def _check(value: Any, field: str, depth: int) -> None:
    if isinstance(value, dict | list) and depth > conf.arguments_depth_count_max:
        _refuse(f"{field} is nested deeper than {conf.arguments_depth_count_max} levels", field)
    if isinstance(value, dict):
        for key, each in value.items():
            _check(key, field, depth)
            _check(each, field, depth + 1)
    elif isinstance(value, list):
        for each in value:
            _check(each, field, depth + 1)
    elif isinstance(value, Number):
        _check_number(value, field)
    elif isinstance(value, str) and ("\x00" in value or _has_surrogate(value)):
        _refuse(f"{field} holds a NUL or half of a surrogate pair", field)


def _check_number(value: Number, field: str) -> None:
    if len(value) > NUMBER_CHARS_MAX:
        _refuse(f"{field} holds a number of more than {NUMBER_CHARS_MAX} characters", field)
    try:
        Decimal(value)
    except InvalidOperation:
        _refuse(f"{field} holds a number that is out of every range", field)


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text)


def _with_defaults(schema: Any, value: Any) -> Any:
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [_with_defaults(schema.get("items"), each) for each in value]
    if not isinstance(value, dict):
        return value
    filled = dict(value)
    for name, part in schema.get("properties", {}).items():
        if name not in filled and isinstance(part, dict) and "default" in part:
            filled[name] = part["default"]
        if name in filled:
            filled[name] = _with_defaults(part, filled[name])
    return filled


def _plain(value: Any) -> Any:
    """The same value with numbers to calculate with: int, or Decimal where it was no integer."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, Number):
        return int(value) if value.lstrip("-").isdigit() else Decimal(value)
    return value


def _for_eyes(text: str) -> Any:
    try:
        return _masked(parse(text))
    except InvalidInput:  # an old row, or a limit that was lowered since: a view never fails
        return _mask(text)


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _mask(each) if is_secret(key) else _masked(each) for key, each in value.items()
        }
    if isinstance(value, list):
        return [_masked(each) for each in value]
    return value


def is_secret(key: str) -> bool:
    """Whether a value under this key is never shown."""
    name = key.lower().replace("-", "_")
    return any(word in name for word in SECRET_WORDS)


def _mask(value: Any) -> Any:
    if value is None:
        return None
    text = value if isinstance(value, str) else _text_of(value)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"•••• ({len(text)} characters, sha256 {digest})"


def _changes(path: str, before: Any, after: Any) -> Iterator[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            step = key if PLAIN_KEY.match(key) else f"[{json.dumps(key, ensure_ascii=False)}]"
            joint = "." if path and not step.startswith("[") else ""
            yield from _changes(
                path + joint + step, before.get(key, _ABSENT), after.get(key, _ABSENT)
            )
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            yield from _changes(f"{path}[{index}]", _item(before, index), _item(after, index))
    elif _shown(before) != _shown(after):
        yield Change(path or "$", _shown(before), _shown(after))


def _item(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else _ABSENT


def _shown(value: Any) -> str | None:
    return None if value is _ABSENT else _text_of(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("the same key twice")
    return values


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _refuse(message: str, field: str = FIELD) -> NoReturn:
    raise InvalidInput(message, field=field)


_DECODER = json.JSONDecoder(
    parse_float=Number,
    parse_int=Number,
    parse_constant=_no_constant,
    object_pairs_hook=_unique,
)
