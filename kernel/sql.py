"""SQL written out for hot verbs: building a query with the ORM costs more than running it.

Here table and column names come from the models. Tests, tails and the few whole statements that the
verbs bring are our own text; values are always parameters. What is not hot uses the ORM.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar, cast

from django.db import IntegrityError, connection
from django.db.models import Field, Model

from kernel.errors import KernelError, RetryTransaction
from kernel.ids import IdField
from kernel.transactions import requires_transaction

ROWS_PER_STATEMENT_MAX = 50
WAIT, SKIP = "wait", "skip"  # for whoever holds the lock of a row

Row = TypeVar("Row", bound=Model)


def rows(
    model: type[Row],
    where: Mapping[str, Any],
    *,
    more: str = "",
    parameters: Sequence[Any] = (),
    columns: tuple[str, ...] = (),
    lock: str = "",
) -> list[Row]:
    """Rows by column -> value, or -> values of which one must match; then our own text `more`.

    `columns` (default all) and the key are read, others are fetched when asked for. `lock`: FOR
    UPDATE, where the database has it, and only inside a transaction: KernelError. Values of `where`
    are checked as the ORM does: InvalidId; None is no value: ValueError.
    """
    names, alias = _read(model, columns), connection.alias
    found = values(model, names, where, more=more, parameters=parameters, lock=lock)
    return [model.from_db(alias, names, one) for one in found]


def values(
    model: type[Model],
    columns: tuple[str, ...],
    where: Mapping[str, Any],
    *,
    more: str = "",
    parameters: Sequence[Any] = (),
    lock: str = "",
) -> Sequence[Sequence[Any]]:
    """The same as plain values, in the order of `columns`."""
    given: list[Any] = []
    shape: list[tuple[str, int]] = []
    for name, value in where.items():
        if value is None:
            raise ValueError(f"{name} = NULL finds nothing; say IS NULL in `more`")
        many = isinstance(value, Collection) and not isinstance(value, str | bytes)
        found = list(value) if many else [value]
        if not found:
            return []
        given += map(_field(model, name).get_prep_value, found)
        shape.append((name, len(found)))
    if lock and not connection.in_atomic_block:
        raise KernelError(f"a lock on {model._meta.db_table} needs a transaction around it")
    lock = lock if connection.features.has_select_for_update else ""
    with connection.cursor() as cursor:
        statement = _select(model, columns, tuple(shape), more, lock)
        cursor.execute(statement, _plain([*given, *parameters]))
        fetched: Sequence[Sequence[Any]] = cursor.fetchall()
    readers = _readers(model, columns)
    if not readers:
        return fetched
    read_rows = [list(one) for one in fetched]
    for row in read_rows:
        for position, read in readers:
            row[position] = read(row[position])
    return read_rows


@requires_transaction
def lock_free_in_tx(model: type[Model], ids: Collection[str]) -> set[str]:
    """Lock those of these rows that nobody else has locked; returns their ids. Waits for none."""
    found = values(model, ("id",), {"id": sorted(ids)}, more="ORDER BY id", lock=SKIP)
    return {row_id for (row_id,) in found}


@requires_transaction
def insert_new_row_in_tx(row: Model) -> None:
    """INSERT a row. When its key was taken the whole block runs again and then sees it."""
    insert_new_rows_in_tx([row])


@requires_transaction
def insert_new_rows_in_tx(new: Sequence[Model]) -> None:
    """INSERT rows of one model. As `insert_new_row_in_tx` when a key was taken."""
    try:
        insert_rows_in_tx(new)
    except IntegrityError as error:
        raise RetryTransaction(f"a row of {new[0]._meta.db_table} met another") from error


@requires_transaction
def insert_rows_in_tx(new: Sequence[Model], *, unless_taken: tuple[str, ...] = ()) -> None:
    """INSERT whole rows of one model. With `unless_taken` (a unique key) an existing row wins.

    It wins after its lock, and never by INSERT IGNORE: that would swallow errors of the data, too.
    """
    for start in range(0, len(new), ROWS_PER_STATEMENT_MAX):
        part = new[start : start + ROWS_PER_STATEMENT_MAX]
        model = type(part[0])
        checks = _written(model)
        names = tuple(name for name, _check in checks)
        given = [
            check(getattr(row, name)) if check else getattr(row, name)
            for row in part
            for name, check in checks
        ]
        with connection.cursor() as cursor:
            cursor.execute(
                _insert(model, names, len(part), unless_taken, connection.vendor), _plain(given)
            )


@requires_transaction
def update_where_in_tx(
    model: type[Model], changes: Mapping[str, Any], where: str, parameters: Sequence[Any]
) -> int:
    """UPDATE ... SET `changes` WHERE `where`, our own text; returns how many rows matched."""
    assignments = ", ".join(f"{name} = %s" for name in changes)
    statement = f"UPDATE {model._meta.db_table} SET {assignments} WHERE {where}"
    given = [_checked(model, name, value) for name, value in changes.items()]
    return execute_in_tx(statement, [*given, *parameters])


@requires_transaction
def execute_in_tx(statement: str, parameters: Sequence[Any]) -> int:
    """Run a statement of ours; returns how many rows matched."""
    with connection.cursor() as cursor:
        cursor.execute(statement, _plain(parameters))
        return int(cursor.rowcount)


def marks(count: int) -> str:
    """The parameters of an IN list of so many values."""
    return ", ".join(["%s"] * count)


@lru_cache(maxsize=64)
def columns_of(model: type[Model], *, without: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The columns of a model, in its order."""
    names = (field.attname for field in model._meta.concrete_fields)
    return tuple(name for name in names if name not in without)


@lru_cache(maxsize=64)
def _read(model: type[Model], columns: tuple[str, ...]) -> tuple[str, ...]:
    """These columns and the key, in the order of the model, which from_db() relies on."""
    key = model._meta.pk.attname
    return tuple(name for name in columns_of(model) if not columns or name in (*columns, key))


@lru_cache(maxsize=512)
def _insert(
    model: type[Model],
    names: tuple[str, ...],
    count: int,
    unless_taken: tuple[str, ...],
    vendor: str,
) -> str:
    table, row = model._meta.db_table, f"({marks(len(names))})"
    statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES {', '.join([row] * count)}"
    if not unless_taken:
        return statement
    if vendor == "mysql":
        return f"{statement} ON DUPLICATE KEY UPDATE {unless_taken[0]} = {unless_taken[0]}"
    return f"{statement} ON CONFLICT ({', '.join(unless_taken)}) DO NOTHING"


@lru_cache(maxsize=512)
def _select(
    model: type[Model], names: tuple[str, ...], shape: tuple[tuple[str, int], ...], *tail: str
) -> str:
    more, lock = tail
    tests = [
        f"{name} IN ({marks(count)})" if count > 1 else f"{name} = %s" for name, count in shape
    ]
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    locking = {"": "", WAIT: " FOR UPDATE", SKIP: " FOR UPDATE SKIP LOCKED"}[lock]
    return f"SELECT {', '.join(names)} FROM {model._meta.db_table}{where} {more}{locking}"


@lru_cache(maxsize=128)
def _readers(model: type[Model], names: tuple[str, ...]) -> tuple[tuple[int, Any], ...]:
    """The columns whose values the driver does not give as the model wants them."""
    kinds = [_READERS.get(_field(model, name).get_internal_type()) for name in names]
    return tuple((position, read) for position, read in enumerate(kinds) if read)


Check = Callable[[Any], Any]


@lru_cache(maxsize=64)
def _checks(model: type[Model]) -> dict[str, Check | None]:
    """Per column what raises InvalidId for no id: the database would take, or merge, such a value.

    None: the column holds no id.
    """
    return {
        field.attname: field.get_prep_value if isinstance(field, IdField) else None
        for field in model._meta.concrete_fields
    }


@lru_cache(maxsize=64)
def _written(model: type[Model]) -> tuple[tuple[str, Check | None], ...]:
    """The columns of an INSERT with their checks: all but a key that the database counts."""
    return tuple(
        (name, check)
        for name, check in _checks(model).items()
        if _field(model, name).get_internal_type() != "BigAutoField"
    )


def _checked(model: type[Model], name: str, value: Any) -> Any:
    check = _checks(model).get(name)  # a column of a mapping beside the model is no id of ours
    return check(value) if check else value


def _field(model: type[Model], name: str) -> "Field[Any, Any]":
    return cast("Field[Any, Any]", model._meta.get_field(name))


def _time(value: datetime | str | None) -> datetime | None:
    if value is None:
        return None
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    return at.replace(tzinfo=UTC)


_READERS = {"BooleanField": bool, "DateTimeField": _time}


def _plain(given: Sequence[Any]) -> list[Any]:
    adapt = connection.ops.adapt_datetimefield_value
    return [adapt(value) if isinstance(value, datetime) else value for value in given]
