"""What tables a database has, with their columns and keys: one question for all of them.

Django's introspection asks table by table, and on SQLite parses the text of each table for it.
"""

from typing import Any

COLUMNS = {
    "sqlite": "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c"
    " WHERE t.type = 'table'",
    "mysql": "SELECT table_name, column_name FROM information_schema.columns"
    " WHERE table_schema = DATABASE()",
}
INDEXES = {
    "sqlite": "SELECT tbl_name, name FROM sqlite_master WHERE type = 'index'",
    "mysql": "SELECT table_name, index_name FROM information_schema.statistics"
    " WHERE table_schema = DATABASE()",
}
UNIQUE_KEYS = {
    "sqlite": "SELECT t.name, k.name, c.name"
    " FROM sqlite_master t, pragma_index_list(t.name) k, pragma_index_info(k.name) c"
    " WHERE t.type = 'table' AND k.\"unique\" = 1 ORDER BY t.name, k.name, c.seqno",
    "mysql": "SELECT table_name, index_name, column_name FROM information_schema.statistics"
    " WHERE table_schema = DATABASE() AND non_unique = 0"
    " ORDER BY table_name, index_name, seq_in_index",
}


def columns_by_table(connection: Any) -> dict[str, set[str]]:
    """The names of the columns by table. A table without a column is no table."""
    return _by_table(_rows(connection, COLUMNS))


def indexes_by_table(connection: Any) -> dict[str, set[str]]:
    """The names of the indexes by table, unique keys included."""
    return _by_table(_rows(connection, INDEXES))


def unique_keys_of(connection: Any) -> set[tuple[str, tuple[str, ...]]]:
    """The unique keys: (table, its columns in the order of the key)."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for table, key, column in _rows(connection, UNIQUE_KEYS):
        found[table, key] = (*found.get((table, key), ()), column)
    return {(table, columns) for (table, _key), columns in found.items()}


def _by_table(rows: list[tuple[str, ...]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for table, name in rows:
        found.setdefault(table, set()).add(name)
    return found


def _rows(connection: Any, queries: dict[str, str]) -> list[tuple[str, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(queries[connection.vendor])
        return list(cursor.fetchall())
