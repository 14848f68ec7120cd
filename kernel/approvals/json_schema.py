"""The subset of JSON Schema that tool arguments are described with: checked, then applied (C1, D4).

Pure. What the subset lacks is refused by name when a tool is saved, so nothing is silently ignored
at a call. Objects take no additional properties unless the schema says so.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from kernel.errors import InvalidInput

DEPTH_MAX = 32
ENUM_COUNT_MAX = 200
PATTERN_CHARS_MAX = 200
PATTERN_VALUE_CHARS_MAX = 1000  # a longer text never fits a pattern: matching takes bounded time
_MISSING = object()

NUMBERS = (int, float, Decimal)
TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, NUMBERS) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
ANYWHERE = frozenset({"type", "enum", "const", "default", "title", "description"})
ONLY_WITH: dict[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items"}),
    "string": frozenset({"minLength", "maxLength", "pattern"}),
    "integer": frozenset({"minimum", "maximum"}),
    "number": frozenset({"minimum", "maximum"}),
}
KEYWORDS = ANYWHERE.union(*ONLY_WITH.values())


def check_schema(value: Any, *, field: str = "parameters") -> None:
    """Whether `value` (parsed JSON) is a schema of the subset that describes an object.

    InvalidInput whose field is the path to what is wrong, such as
    `parameters.properties.amount.minimum`.
    """
    _check(value, field, 1)
    if value.get("type") != "object":
        raise InvalidInput(f"{field}.type must be object", field=f"{field}.type")


def validate(schema: Mapping[str, Any], value: Any, *, field: str = "arguments") -> None:
    """Whether `value` (parsed JSON) fits a checked schema. InvalidInput names the first misfit.

    Types are strict: no text is a number, 1.0 is no integer, true is no number. Numbers may be int,
    Decimal or float. Defaults are not filled in here.
    """
    kind = schema.get("type")
    if kind is not None and not TYPES[kind](value):
        raise InvalidInput(f"{field} must be of type {kind}", field=field)
    if "const" in schema and not same(value, schema["const"]):
        raise InvalidInput(f"{field} must be the one allowed value", field=field)
    if "enum" in schema and not any(same(value, each) for each in schema["enum"]):
        raise InvalidInput(f"{field} is none of the allowed values", field=field)
    if kind == "object":
        _validate_object(schema, value, field)
    elif kind == "array" and "items" in schema:
        for index, each in enumerate(value):
            validate(schema["items"], each, field=f"{field}[{index}]")
    elif kind == "string":
        _validate_string(schema, value, field)
    elif kind in ("integer", "number"):
        _validate_number(schema, value, field)


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values: true is not 1, "1" is not 1, 1.0 and 1 are one number."""
    if TYPES["number"](one) and TYPES["number"](other):
        return _exact(one) == _exact(other)
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


def _validate_object(schema: Mapping[str, Any], value: dict[str, Any], field: str) -> None:
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            raise InvalidInput(f"{field}.{name} is missing", field=f"{field}.{name}")
    for name, each in value.items():
        if name in properties:
            validate(properties[name], each, field=f"{field}.{name}")
        elif not schema.get("additionalProperties", False):
            raise InvalidInput(f"{field} takes no {name[:80]!r}", field=field)


def _validate_string(schema: Mapping[str, Any], value: str, field: str) -> None:
    low, high = schema.get("minLength", 0), schema.get("maxLength")
    if len(value) < low:
        raise InvalidInput(f"{field} needs at least {low} characters", field=field)
    if high is not None and len(value) > high:
        raise InvalidInput(f"{field} takes at most {high} characters", field=field)
    if "pattern" not in schema:
        return
    if len(value) > PATTERN_VALUE_CHARS_MAX or not _compiled(schema["pattern"]).search(value):
        raise InvalidInput(f"{field} does not fit its pattern", field=field)


def _validate_number(schema: Mapping[str, Any], value: Any, field: str) -> None:
    number = _exact(value)
    if not number.is_finite():
        raise InvalidInput(f"{field} must be a finite number", field=field)
    if "minimum" in schema and number < _exact(schema["minimum"]):
        raise InvalidInput(f"{field} must be at least {schema['minimum']}", field=field)
    if "maximum" in schema and number > _exact(schema["maximum"]):
        raise InvalidInput(f"{field} must be at most {schema['maximum']}", field=field)


def _exact(value: Any) -> Decimal:
    # A float stands for what was written: 0.1 of a schema is one tenth.
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _check(value: Any, field: str, depth: int) -> None:
    if not isinstance(value, dict):
        raise InvalidInput(f"{field} must be a JSON object", field=field)
    if depth > DEPTH_MAX:
        raise InvalidInput(f"{field} is nested deeper than {DEPTH_MAX} levels", field=field)
    kind = value.get("type")
    if kind is None and "enum" not in value and "const" not in value:
        raise InvalidInput(f"{field} must say its type", field=f"{field}.type")
    if kind is not None and not (isinstance(kind, str) and kind in TYPES):
        raise InvalidInput(f"{field}.type must be one of {' '.join(TYPES)}", field=f"{field}.type")
    _check_keywords(value, kind, field)
    if kind == "object":
        _check_object(value, field, depth)
    elif kind == "array" and "items" in value:
        _check(value["items"], f"{field}.items", depth + 1)
    elif kind == "string":
        _check_string(value, field)
    elif kind in ("integer", "number"):
        _check_number(value, field)
    _check_values(value, field)


def _check_keywords(value: dict[str, Any], kind: str | None, field: str) -> None:
    for keyword in value:
        if keyword not in KEYWORDS:
            known = f"the keyword {keyword[:80]!r} is not supported here"
            raise InvalidInput(f"{field}: {known}", field=f"{field}.{keyword[:80]}")
        if keyword not in ANYWHERE and keyword not in ONLY_WITH.get(kind or "", ()):
            message = f"{field}: {keyword} does not belong to the type {kind or 'that is missing'}"
            raise InvalidInput(message, field=f"{field}.{keyword}")
    for keyword in ("title", "description"):
        if not isinstance(value.get(keyword, ""), str):
            raise InvalidInput(f"{field}.{keyword} must be text", field=f"{field}.{keyword}")


def _check_object(value: dict[str, Any], field: str, depth: int) -> None:
    properties = value.get("properties", {})
    if not isinstance(properties, dict):
        raise InvalidInput(f"{field}.properties must be an object", field=f"{field}.properties")
    for name, each in properties.items():
        _check(each, f"{field}.properties.{name}", depth + 1)
    required = value.get("required", [])
    if not isinstance(required, list) or len(set(map(str, required))) != len(required):
        raise InvalidInput(f"{field}.required must list names once", field=f"{field}.required")
    for name in required:
        if not isinstance(name, str) or name not in properties:
            message = f"{field}.required: {str(name)[:80]!r} is none of the properties"
            raise InvalidInput(message, field=f"{field}.required")
    if not isinstance(value.get("additionalProperties", False), bool):
        path = f"{field}.additionalProperties"
        raise InvalidInput(f"{path} must be true or false", field=path)


def _check_string(value: dict[str, Any], field: str) -> None:
    low, high = value.get("minLength", 0), value.get("maxLength", _MISSING)
    for keyword, bound in (("minLength", low), ("maxLength", high)):
        if bound is not _MISSING and not (TYPES["integer"](bound) and bound >= 0):
            path = f"{field}.{keyword}"
            raise InvalidInput(f"{path} must be a whole number, zero or more", field=path)
    if high is not _MISSING and low > high:
        raise InvalidInput(f"{field}.maxLength is below minLength", field=f"{field}.maxLength")
    if "pattern" in value:
        _check_pattern(value["pattern"], f"{field}.pattern")


def _check_number(value: dict[str, Any], field: str) -> None:
    for keyword in ("minimum", "maximum"):
        bound = value.get(keyword, 0)
        if not TYPES["number"](bound) or not _exact(bound).is_finite():
            raise InvalidInput(f"{field}.{keyword} must be a number", field=f"{field}.{keyword}")
    if {"minimum", "maximum"} <= value.keys() and _exact(value["minimum"]) > _exact(
        value["maximum"]
    ):
        raise InvalidInput(f"{field}.maximum is below minimum", field=f"{field}.maximum")


def _check_values(value: dict[str, Any], field: str) -> None:
    """enum, const and default hold values that fit the rest of the schema."""
    options = value.get("enum", _MISSING)
    if options is not _MISSING and not (
        isinstance(options, list) and 1 <= len(options) <= ENUM_COUNT_MAX
    ):
        message = f"{field}.enum must list 1-{ENUM_COUNT_MAX} values"
        raise InvalidInput(message, field=f"{field}.enum")
    rest = {key: each for key, each in value.items() if key not in ("enum", "const", "default")}
    named = [(f"{field}.enum[{n}]", each) for n, each in enumerate(value.get("enum", []))]
    if "const" in value:
        named.append((f"{field}.const", value["const"]))
    for path, each in named:
        validate(rest, each, field=path)
    if "default" in value:
        validate(value, value["default"], field=f"{field}.default")


def _check_pattern(pattern: Any, path: str) -> None:
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= PATTERN_CHARS_MAX:
        raise InvalidInput(f"{path} must have 1-{PATTERN_CHARS_MAX} characters", field=path)
    try:
        _compiled(pattern)
    except (ValueError, re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{path}: {error}", field=path) from None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(_translated(pattern), re.ASCII)


def _translated(pattern: str) -> str:
    """The pattern in Python's words; ValueError for what could take exponential time.

    `$` means the very end, as in JSON Schema, not the place before a last line feed.
    """
    parts: list[str] = []
    class_at, at = -1, 0  # where the character class around `at` starts
    while at < len(pattern):
        one = pattern[at]
        after = pattern[at + 1 : at + 2]
        if one == "\\":
            if after.isdigit() and after != "0":
                raise ValueError("it may not refer back to a group")
            parts.append(one + after)
            at += 2
            continue
        if class_at >= 0:
            # A ] that comes first is one of the characters.
            if one == "]" and pattern[class_at:at] not in ("[", "[^"):
                class_at = -1
        elif one == "[":
            class_at = at
        elif one == "(" and after == "?" and pattern[at + 2 : at + 3] != ":":
            raise ValueError("of the groups (?...) only (?:...) is allowed")
        elif one == ")" and after and after in "*+{":
            raise ValueError("a group may not be repeated")
        elif one == "$":
            one = r"\Z"
        parts.append(one)
        at += 1
    return "".join(parts)
