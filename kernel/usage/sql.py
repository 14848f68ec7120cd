"""SQL written out for the hot verbs: building a query with the ORM costs more than running it.

Only inserts of whole rows and compare-and-set updates by primary key; everything else uses the ORM.
Table and column names come from the models; values are always parameters.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import connection
from django.db.models import Model

from kernel.transactions import requires_transaction

ROWS_PER_STATEMENT_MAX = 50


@requires_transaction
def insert_rows_in_tx(
    model: type[Model], rows: Sequence[Model], *, unless_taken: tuple[str, ...] = ()
) -> None:
    """INSERT whole rows. With `unless_taken` (a unique key) an existing row wins, after its lock.

    Never INSERT IGNORE: it would also swallow errors of the data.
    """
    names = _columns(model)
    for start in range(0, len(rows), ROWS_PER_STATEMENT_MAX):
        part = rows[start : start + ROWS_PER_STATEMENT_MAX]
        values = [_plain(getattr(row, name)) for row in part for name in names]
        with connection.cursor() as cursor:
            cursor.execute(_insert(model, len(part), unless_taken, connection.vendor), values)


@requires_transaction
def update_where_in_tx(
    model: type[Model], values: Mapping[str, Any], where: str, parameters: Sequence[Any]
) -> int:
    """UPDATE ... SET values WHERE `where`; returns how many rows matched.

    `where` is our own text.
    """
    assignments = ", ".join(f"{name} = %s" for name in values)
    statement = f"UPDATE {model._meta.db_table} SET {assignments} WHERE {where}"
    return execute_in_tx(statement, [*values.values(), *parameters])


@requires_transaction
def execute_in_tx(statement: str, parameters: Sequence[Any]) -> int:
    """Run a statement of ours; returns how many rows matched."""
    with connection.cursor() as cursor:
        cursor.execute(statement, [_plain(value) for value in parameters])
        return int(cursor.rowcount)


@lru_cache(maxsize=32)
def _columns(model: type[Model]) -> tuple[str, ...]:
    return tuple(
        field.attname
        for field in model._meta.concrete_fields
        if field.get_internal_type() != "BigAutoField"
    )


@lru_cache(maxsize=512)
def _insert(model: type[Model], count: int, unless_taken: tuple[str, ...], vendor: str) -> str:
    names = _columns(model)
    row = f"({', '.join(['%s'] * len(names))})"
    statement = (
        f"INSERT INTO {model._meta.db_table} ({', '.join(names)}) VALUES {', '.join([row] * count)}"
    )
    if not unless_taken:
        return statement
    same = f"{unless_taken[0]} = {unless_taken[0]}"
    if vendor == "mysql":
        return f"{statement} ON DUPLICATE KEY UPDATE {same}"
    key = ", ".join(unless_taken)
    return f"{statement} ON CONFLICT ({key}) DO NOTHING"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return value
