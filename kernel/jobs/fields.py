"""What fields of tools, routes and jobs may hold: counts, flags, longer texts. Pure."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from kernel.errors import InvalidInput

LINE_BREAKS = "\n\r\t"
UNSTORABLE = frozenset({"Cc", "Cs"})  # controls and lone surrogates


def check_known(fields: Mapping[str, Any], known: Sequence[str], *, what: str) -> None:
    """InvalidInput that names the first field which is none of `known`."""
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise InvalidInput(f"a {what} has no field {unknown[0]}", field=unknown[0])


def check_count(value: Any, *, field: str, low: int, high: int) -> int:
    """A whole number within its inclusive bounds, else InvalidInput."""
    if type(value) is not int or not low <= value <= high:
        raise InvalidInput(f"{field} is a whole number from {low} to {high}", field=field)
    return value


def check_optional_count(value: Any, *, field: str, low: int, high: int) -> int | None:
    """The same, or None for no limit."""
    return None if value is None else check_count(value, field=field, low=low, high=high)


def check_flag(value: Any, *, field: str) -> bool:
    """True or False, else InvalidInput."""
    if type(value) is not bool:
        raise InvalidInput(f"{field} is true or false", field=field)
    return value


def check_long_text(value: Any, *, field: str, chars_max: int) -> str:
    """A text of several lines, possibly empty, without other control characters."""
    if not isinstance(value, str) or len(value) > chars_max:
        raise InvalidInput(f"{field} is a text of at most {chars_max} characters", field=field)
    if any(unicodedata.category(c) in UNSTORABLE and c not in LINE_BREAKS for c in value):
        raise InvalidInput(f"{field} must not hold control characters", field=field)
    return value
