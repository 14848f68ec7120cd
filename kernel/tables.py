"""What tables a database has, with their columns and keys: one question for all of them.

Django's introspection asks table by table, and on SQLite parses the text of each table for it.
"""

import re
from typing import Any

COLUMNS = {
    "sqlite": "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c"
    " WHERE t.type = 'table'",
    "mysql": "SELECT table_name, column_name FROM information_schema.columns"
    " WHERE table_schema = DATABASE()",
}
DEFINITIONS = {
    "sqlite": "SELECT t.name, c.name, lower(c.type), c.\"notnull\", '', '', ''"
    " FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table'",
    "mysql": "SELECT table_name, column_name, column_type, is_nullable = 'NO',"
    " character_set_name, collation_name, extra FROM information_schema.columns"
    " WHERE table_schema = DATABASE()",
}
COLLATIONS = (
    "SELECT table_name, table_collation FROM information_schema.tables"
    " WHERE table_schema = DATABASE()"
)
INDEXES = {
    "sqlite": "SELECT tbl_name, name FROM sqlite_master WHERE type = 'index'",
    "mysql": "SELECT table_name, index_name FROM information_schema.statistics"
    " WHERE table_schema = DATABASE()",
}
# The last three of a row: direction, collation, length of a prefix; where they say nothing, ''.
KEYS = {
    "sqlite": 'SELECT t.name, k.name, k."unique" AND NOT k.partial, c.name,'
    " CASE WHEN c.\"desc\" THEN 'DESC' ELSE '' END, nullif(c.coll, 'BINARY'), NULL"
    " FROM sqlite_master t, pragma_index_list(t.name) k, pragma_index_xinfo(k.name) c"
    " WHERE t.type = 'table' AND c.key = 1 ORDER BY t.name, k.name, c.seqno",
    "mysql": "SELECT table_name, index_name, non_unique = 0, column_name,"
    " CASE collation WHEN 'D' THEN 'DESC' ELSE '' END, NULL, sub_part"
    " FROM information_schema.statistics WHERE table_schema = DATABASE()"
    " ORDER BY table_name, index_name, seq_in_index",
}
TEXT = "utf8mb4"
_WIDTH = re.compile(r"^(\w*int)\(\d+\)")  # MariaDB shows a width that means nothing

Key = tuple[bool, tuple[str, ...]]  # whether it is unique, its columns


def columns_by_table(connection: Any) -> dict[str, set[str]]:
    """The names of the columns by table. A table without a column is no table."""
    return _by_table(_rows(connection, COLUMNS[connection.vendor]))


def definitions_of(connection: Any) -> dict[tuple[str, str], str]:
    """Type, character set, nullability of every column: `bigint NOT NULL` by (table, column).

    A text in utf8mb4 and its table's own collation names neither.
    """
    is_server = connection.vendor == "mysql"
    collations = dict(_rows(connection, COLLATIONS)) if is_server else {}
    found = {}
    for table, column, kind, is_needed, charset, collation, extra in _rows(
        connection, DEFINITIONS[connection.vendor]
    ):
        words = [_WIDTH.sub(r"\1", kind)]
        if collation and (charset, collation) != (TEXT, collations.get(table)):
            words.append(f"CHARACTER SET {charset} COLLATE {collation}")
        words.append("NOT NULL" if is_needed else "NULL")
        if "auto_increment" in extra:
            words.append("AUTO_INCREMENT")
        found[table, column] = " ".join(words)
    return found


def indexes_by_table(connection: Any) -> dict[str, set[str]]:
    """The names of the indexes by table, unique keys included."""
    return _by_table(_rows(connection, INDEXES[connection.vendor]))


def keys_of(connection: Any) -> dict[tuple[str, str], Key]:
    """Every index by (table, name). A column says where it is a prefix, descending, or folds."""
    found: dict[tuple[str, str], Key] = {}
    for table, name, is_unique, column, direction, collation, length in _rows(
        connection, KEYS[connection.vendor]
    ):
        part = f"{column}({length})" if length else str(column)
        words = [part, f"COLLATE {collation}" if collation else "", direction]
        columns = found[table, name][1] if (table, name) in found else ()
        found[table, name] = bool(is_unique), (*columns, " ".join(filter(None, words)))
    return found


def unique_keys_of(connection: Any) -> set[tuple[str, tuple[str, ...]]]:
    """The unique keys: (table, its columns in the order of the key)."""
    keys = keys_of(connection).items()
    return {(table, columns) for (table, _name), (is_unique, columns) in keys if is_unique}


def _by_table(rows: list[tuple[Any, ...]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for table, name in rows:
        found.setdefault(table, set()).add(name)
    return found


def _rows(connection: Any, query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())
