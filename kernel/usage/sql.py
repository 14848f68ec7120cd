"""SQL written out for the hot verbs: building a query with the ORM costs more than running it.

Only inserts of whole rows, reads by key, compare-and-set updates by primary key, and the
statements of a hold and of a charge; everything else uses the ORM. Table and column names come
from the models; values are always parameters.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar, cast

from django.db import connection
from django.db.models import Field, Model

from kernel.transactions import requires_transaction

ROWS_PER_STATEMENT_MAX = 50

# A hold under a cap. Subtracted, because consumed + held + hold can leave the column's range.
HOLD = (
    "UPDATE bz_usage_accounts SET held_nano = held_nano + %s"
    " WHERE id = %s AND overrun_at IS NULL AND cap_nano - consumed_nano - held_nano >= %s"
)
# A charge takes effect: its ledger row first, then these, the account last (A14, A15).
SETTLE = (
    "UPDATE bz_usage_requests SET billing_state = %s, pending_reason = '', billed_nano ="
    " (SELECT amount_nano FROM bz_usage_ledger WHERE charge_of = bz_usage_requests.id LIMIT 1),"
    " reference_nano ="
    " (SELECT reference_nano FROM bz_usage_ledger WHERE charge_of = bz_usage_requests.id LIMIT 1),"
    " settled_at = %s, updated_at = %s WHERE billing_state = %s AND id IN ({marks})"
)
# The flag comes first: MySQL would compare with what is already added, SQLite would not.
CONSUME = (
    "UPDATE bz_usage_accounts SET overrun_at = CASE"
    " WHEN overrun_at IS NULL AND cap_nano < consumed_nano + %s THEN %s ELSE overrun_at END,"
    " consumed_nano = consumed_nano + %s, held_nano = held_nano - %s WHERE id = %s"
)

Row = TypeVar("Row", bound=Model)
Where = Mapping[str, Any]


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
        values = _plain([getattr(row, name) for row in part for name in names])
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
def rows_in_tx(
    model: type[Row], where: Where, *, columns: tuple[str, ...] = (), lock: bool = False
) -> list[Row]:
    """Rows by key: column -> value, or -> values of which one must match.

    `columns` (in the order of the model; default all) are read, the others are fetched when asked
    for. `lock`: FOR UPDATE, in id order. Values are checked as the ORM does: InvalidId.
    """
    names = columns or _columns(model)
    alias = connection.alias
    values = select_in_tx(model, names, where, lock=lock)
    return [model.from_db(alias, names, one) for one in values]


@requires_transaction
def select_in_tx(
    model: type[Model], columns: tuple[str, ...], where: Where, *, lock: bool = False
) -> Sequence[Sequence[Any]]:
    """The same as plain values, in the order of `columns`."""
    parameters: list[Any] = []
    shape: list[tuple[str, int]] = []
    for name, value in where.items():
        many = isinstance(value, Collection) and not isinstance(value, str)
        found = list(value) if many else [value]
        if not found:
            return []
        parameters += map(_field(model, name).get_prep_value, found)
        shape.append((name, len(found)))
    lock = lock and connection.features.has_select_for_update
    with connection.cursor() as cursor:
        cursor.execute(_select(model, columns, tuple(shape), lock), parameters)
        fetched: Sequence[Sequence[Any]] = cursor.fetchall()
    readers = _readers(model, columns)
    if not readers:
        return fetched
    rows = [list(one) for one in fetched]
    for row in rows:
        for position, read in readers:
            row[position] = read(row[position])
    return rows


@requires_transaction
def settle_rows_in_tx(ids: Sequence[str], *, before: str, after: str, now: datetime) -> int:
    """Move charged requests from `before` to `after`, with their amounts from the ledger."""
    marks = ", ".join(["%s"] * len(ids))
    return execute_in_tx(SETTLE.format(marks=marks), [after, now, now, before, *ids])


@requires_transaction
def execute_in_tx(statement: str, parameters: Sequence[Any]) -> int:
    """Run a statement of ours; returns how many rows matched."""
    with connection.cursor() as cursor:
        cursor.execute(statement, _plain(parameters))
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


@lru_cache(maxsize=512)
def _select(
    model: type[Model], columns: tuple[str, ...], shape: tuple[tuple[str, int], ...], lock: bool
) -> str:
    tests = [f"{name} IN ({', '.join(['%s'] * count)})" for name, count in shape]
    statement = f"SELECT {', '.join(columns)} FROM {model._meta.db_table}"
    return f"{statement} WHERE {' AND '.join(tests)}{' ORDER BY id FOR UPDATE' if lock else ''}"


@lru_cache(maxsize=64)
def _readers(model: type[Model], columns: tuple[str, ...]) -> tuple[tuple[int, Any], ...]:
    """The columns whose values the driver does not give as the model wants them."""
    kinds = [READERS.get(_field(model, name).get_internal_type()) for name in columns]
    return tuple((position, read) for position, read in enumerate(kinds) if read)


def _field(model: type[Model], name: str) -> "Field[Any, Any]":
    return cast("Field[Any, Any]", model._meta.get_field(name))


def _time(value: datetime | str | None) -> datetime | None:
    if value is None:
        return None
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    return at.replace(tzinfo=UTC)


READERS = {"BooleanField": bool, "DateTimeField": _time}


def _plain(values: Sequence[Any]) -> list[Any]:
    adapt = connection.ops.adapt_datetimefield_value
    return [adapt(value) if isinstance(value, datetime) else value for value in values]
