"""A process that runs db_init again and again and kills each run after its next DDL statement.

python -m tests.support.migrator_kills      the database is in the environment of the tests
python -m tests.support.migrator_kills 7    only every seventh statement

Each run is a forked child that ends itself with a real SIGKILL. A run that left nothing new behind
(its statement only walked over what was there) lets the next one go one statement further; on
SQLite, where a migration is a transaction and leaves nothing half done, four times as far. Once the
kernel's own migrations are through, only every fifth statement of the others is a boundary.
Prints one JSON document: kills, boundaries, seconds.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import django
from django.db import connection
from django.db.migrations.loader import MigrationLoader

OTHERS_STRIDE = 5
DDL = ("CREATE", "ALTER", "DROP")


def killed_after(statements: int) -> Callable[..., Any]:
    """An execute wrapper: SIGKILL right after the n-th DDL statement of this process."""
    left = statements

    def wrap(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        nonlocal left
        result = execute(sql, *rest)
        if sql.startswith(DDL) and result is not None:  # None: there already, walked over
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrap


def run_and_die(statements: int) -> int:
    """In the child: 0 when the migrator came to its end before the n-th statement."""
    from kernel import schema

    with connection.execute_wrapper(killed_after(statements)):
        schema.migrate()
    return 0


def child(statements: int) -> int:
    """The wait status of one run."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = run_and_die(statements)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def marks() -> tuple[Any, ...]:
    """What the runs have left behind so far."""
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        if connection.vendor == "sqlite":
            cursor.execute("SELECT name, sql FROM sqlite_master ORDER BY name")
        else:
            cursor.execute(
                "SELECT table_name, column_name, column_type, is_nullable, '' FROM"
                " information_schema.columns WHERE table_schema = DATABASE() UNION ALL"
                " SELECT table_name, index_name, column_name, seq_in_index, '' FROM"
                " information_schema.statistics WHERE table_schema = DATABASE() UNION ALL"
                " SELECT table_name, constraint_name, '', 0, '' FROM"
                " information_schema.table_constraints WHERE table_schema = DATABASE()"
            )
        parts = frozenset(cursor.fetchall())
        applied: frozenset[Any] = frozenset()
        if "django_migrations" in tables:
            cursor.execute("SELECT app, name FROM django_migrations")
            applied = frozenset(cursor.fetchall())
    connection.close()  # a child must not inherit it
    return parts, applied


def further(statements: int) -> int:
    """How far the next run may go when this one came to nothing."""
    return statements * 4 if connection.vendor == "sqlite" else statements + 1


def main(stride: int = 1) -> int:
    django.setup()
    loader = MigrationLoader(None)
    assert loader.project_state().apps  # imported and rendered once, for all children
    known = loader.disk_migrations
    kernels = {pair for pair in known if pair[0] == "kernel"}
    started = time.monotonic()
    kills = boundaries = 0
    budget, before = stride, marks()
    while os.WIFSIGNALED(status := child(budget)):
        kills += 1
        after = marks()
        boundaries += after != before
        step = OTHERS_STRIDE * stride if kernels <= after[1] else stride
        budget = step if after != before else further(budget)
        before = after
    found = {"kills": kills, "boundaries": boundaries, "seconds": time.monotonic() - started}
    print(json.dumps(found))
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
