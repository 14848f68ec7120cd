"""Ids: one alphabet, case-sensitive, the same on every database (A1)."""

import os
import re
import time
from typing import Any

from django.db import models

from kernel.errors import InvalidId

ALLOWED = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
RESERVED_PREFIX = "job:"


def new_id(prefix: str) -> str:
    """A fresh id that sorts by time: `<prefix>_` + 12 hex digits of milliseconds + 20 random ones."""
    milliseconds = time.time_ns() // 1_000_000
    return f"{prefix}_{milliseconds:012x}{os.urandom(10).hex()}"


def check_id(value: Any, *, field: str) -> str:
    """Returns `value` when it is an allowed id, else InvalidId naming `field` (A1)."""
    if not isinstance(value, str) or not ALLOWED.match(value):
        raise InvalidId(
            f"{field} must be 1-128 characters of A-Z a-z 0-9 . _ : -",
            field=field,
            next_action="Send an id such as order-1001 or a UUID.",
        )
    return value


class IdField(models.CharField):
    """A CharField that keeps `A` and `a`, `e` and `é` apart on MySQL, MariaDB and SQLite alike.

    MySQL's default collations merge more than case, so the column is ascii_bin there; a value outside
    the alphabet never reaches the database (a non-ASCII lookup would be an error of the server).
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
        value = super().get_prep_value(value)
        if value is None or value == "":
            return value
        return check_id(value, field=self.name or "id")
