"""Schemas for the parts that run in this process: choose one, fill it with requests by SQL."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from urllib.parse import urlsplit

from django.db import connection
from django.db.models import Model

from kernel import clock, schema
from kernel.models import Request
from tests.support.mariadb_server import Server

SPREAD = timedelta(days=89)
ACCOUNTS = 19
BATCH_ROWS = 50_000
# Of a thousand requests: 1 unknown, 2 more not settled yet, 10 failed.
MIX: Mapping[str, str] = {
    "account_id": f"CONCAT('account-', n % {ACCOUNTS})",
    "result_state": "CASE WHEN n % 1000 = 1 THEN 'unknown' WHEN n % 100 = 2 THEN 'failed'"
    " ELSE 'complete' END",
    "billing_state": "CASE WHEN n % 1000 = 1 OR n % 500 = 3 THEN 'pending'"
    " WHEN n % 100 = 2 THEN 'not_charged' ELSE 'settled' END",
    "pending_reason": "CASE WHEN n % 1000 = 1 THEN 'no_usage' WHEN n % 100 = 2 THEN 'rejected'"
    " ELSE '' END",
}
PENDING: Mapping[str, str] = {"billing_state": "'pending'"}


@contextmanager
def migrated(server: Server) -> Iterator[str]:
    """A schema of its own with all tables; its name. Chosen until another one is."""
    with server.schema() as url:
        name = urlsplit(url).path.removeprefix("/")
        choose(name)
        schema.migrate()
        yield name


def choose(name: str) -> None:
    """Point this process's connection at a schema of the same server."""
    connection.settings_dict["NAME"] = name
    if connection.connection is not None:
        _execute(f"USE `{name}`")


def fill(*, pattern: Request, rows: int, columns: Mapping[str, str]) -> None:
    """Replace all requests by `rows` copies of `pattern`, made inside the server.

    `columns` holds SQL by column, with `n` for the number of the copy. Ids are unique and times
    rise with them over the last 90 days, as in a table that grew.
    """
    made = {
        "id": "CONCAT('req_copy', LPAD(n, 9, '0'))",
        "operation_id": "CONCAT('copy-', n)",
        **dict.fromkeys(
            ("admitted_at", "dispatched_at", "result_at", "updated_at"), rising(rows=rows)
        ),
        **columns,
    }
    copy(model=Request, key=pattern.id, rows=rows, columns=made)


def rising(*, rows: int) -> str:
    """SQL of a moment that rises with `n` over the last 90 days."""
    start = clock.db_now() - SPREAD - timedelta(days=1)
    step = SPREAD // rows // timedelta(microseconds=1)
    return f"(TIMESTAMP('{start:%Y-%m-%d %H:%M:%S}') + INTERVAL n * {step} MICROSECOND)"


def copy(
    *, model: type[Model], key: str, rows: int, columns: Mapping[str, str], where: str = "TRUE"
) -> None:
    """Replace the table's rows by copies of the row with this key: one per n below `rows`.

    `columns` as in `fill`; `where` is SQL that may leave numbers out.
    """
    table, primary = model._meta.db_table, model._meta.pk.column
    names = [field.column for field in model._meta.concrete_fields]
    values = ", ".join(columns.get(name, f"pattern.{name}") for name in names)
    _execute(
        f"CREATE TABLE bench_pattern AS SELECT * FROM {table} WHERE {primary} = '{key}'",
        f"TRUNCATE {table}",
        "CREATE TABLE bench_numbers (n INT PRIMARY KEY)",
        "INSERT INTO bench_numbers VALUES (0)",
    )
    made_rows = 1
    while made_rows < rows:
        _execute(f"INSERT INTO bench_numbers SELECT n + {made_rows} FROM bench_numbers")
        made_rows *= 2
    for first in range(0, rows, BATCH_ROWS):  # by rising keys: pages fill up one after another
        _execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM bench_numbers"
            " STRAIGHT_JOIN bench_pattern AS pattern"
            f" WHERE n >= {first} AND n < {min(first + BATCH_ROWS, rows)} AND {where}"
        )
    _execute(f"ANALYZE TABLE {table}", "DROP TABLE bench_numbers, bench_pattern")


def _execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            if cursor.description:
                cursor.fetchall()
