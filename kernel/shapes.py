"""The shape of the tables: what the migrations made, and where this database differs from it (H2).

The ledger says that a migration ran, not that nobody changed a table by hand since. The models say
what its columns are; the migrations themselves say which indexes no model maps.
"""

import re
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.db import connection, models
from django.db.migrations.loader import MigrationLoader

from kernel.ddl import AddPlainIndex, AddUniqueIndex
from kernel.tables import Key, columns_by_table, definitions_of, keys_of

# What Django writes, and what a server calls it.
_NAMES = {"integer": "int", "bool": "tinyint", "numeric": "decimal"}
_NAMED = re.compile(rf"^({'|'.join(_NAMES)})\b")


def gone() -> list[str]:
    """Tables and columns that the models need and the database does not have.

    One question, for a database to which every migration is applied.
    """
    tables = columns_by_table(connection)
    return _gone({(table, column) for table, columns in tables.items() for column in columns})


def differences() -> list[str]:
    """Each table, column and index that is not what the migrations make, one phrase each.

    Columns: type, length, sign, precision, character set, nullability. Indexes: columns, their
    order, uniqueness. What is there besides is nobody's business. SQLite keeps no character sets
    and no lengths of its own; it says what was declared.
    """
    found = definitions_of(connection)
    missing = _gone(set(found))
    lost_tables = {part.removeprefix("table ") for part in missing}
    phrases = [f"{part} is missing" for part in missing]
    for table, column, field in _columns():
        has, wants = found.get((table, column)), _definition(field)
        if has not in (None, wants):
            phrases.append(f"column {table}.{column} is {has}, not {wants}")
    keys = keys_of(connection)
    for table, name, wanted in _indexes():
        if table not in lost_tables and (key := keys.get((table, name))) != wanted:
            phrases.append(f"index {name} on {table} {_compared(key, wanted)}")
    unique = {(table, columns) for (table, _), (is_unique, columns) in keys.items() if is_unique}
    for table, columns in _unique_keys():
        if table not in lost_tables and (table, columns) not in unique:
            phrases.append(f"unique key ({', '.join(columns)}) on {table} is missing")
    return list(dict.fromkeys(phrases))  # columns are mapped by more than one model


def _gone(found: set[tuple[str, str]]) -> list[str]:
    tables = {table for table, _ in found}
    parts = [
        f"column {table}.{column}" if table in tables else f"table {table}"
        for table, column, _ in _columns()
        if (table, column) not in found
    ]
    return list(dict.fromkeys(parts))


def _models() -> list[type[models.Model]]:
    return list(apps.get_app_config("kernel").get_models())


def _columns() -> Iterator[tuple[str, str, Any]]:
    for model in _models():
        for field in model._meta.concrete_fields:
            yield model._meta.db_table, str(field.column), field


def _definition(field: Any) -> str:
    kind = field.db_type(connection) or ""
    null = "NULL" if field.null else "NOT NULL"
    if connection.vendor != "mysql":
        return f"{kind.lower()} {null}"
    kind, space, counter = kind.partition(" AUTO_INCREMENT")
    kind = _NAMED.sub(lambda match: _NAMES[match[0]], kind).replace(" UNSIGNED", " unsigned")
    return f"{kind} {null}{space}{counter}"


def _indexes() -> Iterator[tuple[str, str, Key]]:
    """Every index by its name, of the models and of the columns that none of them owns."""
    for model in _models():
        column_of = _names(model)
        for index in model._meta.indexes:
            columns = (f"{column_of[name]} {order}".strip() for name, order in index.fields_orders)
            yield model._meta.db_table, index.name, (False, tuple(columns))
    files = MigrationLoader(None, load=False)  # its graph is not needed
    files.load_disk()
    for (app, _), migration in files.disk_migrations.items():
        for step in migration.operations if app == "kernel" else ():
            if isinstance(step, AddPlainIndex):
                is_unique = isinstance(step, AddUniqueIndex)
                yield step.table, step.name, (is_unique, tuple(step.columns))


def _unique_keys() -> Iterator[tuple[str, tuple[str, ...]]]:
    """By their columns: SQLite gives those within a table names of its own."""
    for table, column, field in _columns():
        is_rowid = connection.vendor == "sqlite" and isinstance(field, models.AutoField)
        if field.unique and not is_rowid:
            yield table, (column,)
    for model in _models():
        column_of = _names(model)
        for key in model._meta.total_unique_constraints:
            yield model._meta.db_table, tuple(column_of[name] for name in key.fields)


def _names(model: type[models.Model]) -> dict[str, str]:
    return {field.name: str(field.column) for field in model._meta.concrete_fields}


def _compared(key: Key | None, wanted: Key) -> str:
    return "is missing" if key is None else f"is {_told(key)}, not {_told(wanted)}"


def _told(key: Key) -> str:
    is_unique, columns = key
    return f"{'unique ' if is_unique else ''}({', '.join(columns)})"
