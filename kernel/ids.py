"""Ids: one alphabet, case-sensitive, the same on every database (A1)."""

import os
import re
import time
import unicodedata
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from django.db import models

from kernel.errors import InvalidId, InvalidInput

CHARS_MAX = 128
ALLOWED = re.compile(r"[A-Za-z0-9._:-]+\Z")
RESERVED_PREFIX = "job:"
UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})  # controls, lone surrogates, line separators


def new_id(prefix: str) -> str:
    """A fresh id that sorts by time: `<prefix>_`, 12 hex digits of milliseconds, 20 random ones."""
    milliseconds = time.time_ns() // 1_000_000
    return f"{prefix}_{milliseconds:012x}{os.urandom(10).hex()}"


def check_id(value: Any, *, field: str, chars_max: int = CHARS_MAX) -> str:
    """Returns `value` when it is an allowed id, else InvalidId naming `field` (A1)."""
    if not is_id(value, chars_max=chars_max):
        raise InvalidId(
            f"{field} must be 1-{chars_max} characters of A-Z a-z 0-9 . _ : -",
            field=field,
            next_action="Send an id such as order-1001 or a UUID.",
        )
    return value


def is_id(value: Any, *, chars_max: int = CHARS_MAX) -> bool:
    """Whether `value` is an allowed id (A1)."""
    return isinstance(value, str) and len(value) <= chars_max and bool(ALLOWED.match(value))


def check_text(value: Any, *, field: str, chars_max: int) -> str:
    """Returns `value` stripped: one line of 1 to `chars_max` characters, else InvalidInput."""
    text = value.strip() if isinstance(value, str) else ""
    if not 1 <= len(text) <= chars_max:
        raise InvalidInput(f"{field} must have 1-{chars_max} characters", field=field)
    if any(unicodedata.category(character) in UNPRINTABLE for character in text):
        raise InvalidInput(f"{field} must be one line without control characters", field=field)
    return text


OWN_VARIABLES = ("BAILING_", "DJANGO_", "MYSQL_")
KEY_NAMES_VARIABLE = "BAILING_KEY_NAMES"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,119}\Z")
# Where BAILING_KEY_NAMES declares none: a telling word, and none of what hosts keep for themselves.
_KEY_WORDS = frozenset({"KEY", "TOKEN", "SECRET", "SIGNING"})
_HOST_WORDS = frozenset({"ACCESS", "PRIVATE", "SSH", "VAULT", "KUBERNETES", "DATABASE", "BROKER"})


def check_key_name(
    name: Any, *, field: str, also: str = "", environ: Mapping[str, str] = os.environ
) -> str:
    """The name of an environment variable whose value may leave as a key, else InvalidInput (I1).

    Never one of our own, but for names that begin with `also`. Of the others those that
    BAILING_KEY_NAMES lists (`OPENAI_API_KEY, SHOP_*`); without it, those that say that they are a
    key, token or secret. So nobody sends a secret of the host away by naming it.
    """
    if not isinstance(name, str) or not _VARIABLE.match(name):
        raise InvalidInput(
            f"{field} is the name of an environment variable in capitals, never the secret itself",
            field=field,
        )
    if name.startswith(OWN_VARIABLES) and not (also and name.startswith(also)):
        raise InvalidInput(f"{name} belongs to this product itself; it is never sent", field=field)
    if also and name.startswith(also):
        return name
    declared = [part.strip() for part in environ.get(KEY_NAMES_VARIABLE, "").split(",")]
    patterns = [part for part in declared if part]
    words = set(name.split("_"))
    by_words = not patterns and bool(words & _KEY_WORDS) and not words & _HOST_WORDS
    if not by_words and not any(fnmatchcase(name, pattern) for pattern in patterns):
        raise InvalidInput(
            f"{name} is not declared as a key",
            field=field,
            next_action=f"Add it to {KEY_NAMES_VARIABLE} where the product runs, and restart.",
        )
    return name


def key_value(name: str, *, environ: Mapping[str, str], also: str = "") -> str:
    """What a key's variable holds; '' when it is not set, or may not be read (any more)."""
    try:
        check_key_name(name, field="name", also=also, environ=environ)
    except InvalidInput:
        return ""
    return environ.get(name, "")


def key_values(names: str, *, environ: Mapping[str, str]) -> dict[str, str]:
    """What the variables of a list with commas hold, by name; '' where `key_value` says so."""
    return {name: key_value(name, environ=environ) for name in names.split(",") if name}


class IdField(models.CharField):
    """A CharField that keeps `A` and `a`, `e` and `é` apart on MySQL, MariaDB and SQLite alike.

    MySQL's default collations merge more than case, so the column is ascii_bin there; a value
    outside the alphabet never reaches the database (a non-ASCII lookup would be an error of the
    server).
    """

    def __init__(self, *args: Any, **kwargs: Any):
        kwargs.setdefault("max_length", 128)
        super().__init__(*args, **kwargs)

    def db_type(self, connection: Any) -> str | None:
        kind = super().db_type(connection)
        if connection.vendor == "mysql":
            return f"{kind} CHARACTER SET ascii COLLATE ascii_bin"
        return kind

    def get_prep_value(self, value: Any) -> Any:
        if is_id(value):  # what nearly every value is: six of them per ledger row
            return value
        value = super().get_prep_value(value)
        if value is None or value == "":
            return value
        # An audit subject holds an id and its kind, so it may be longer than any id.
        return check_id(
            value, field=self.name or "id", chars_max=max(CHARS_MAX, self.max_length or 0)
        )
