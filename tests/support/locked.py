"""A row that somebody else has locked, as a host that vanished leaves it, on a server."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Model

from kernel.conf import override

WAIT_SECONDS = 1
_WAIT = re.compile(r"innodb_lock_wait_timeout=\d+")


@contextmanager
def locked(model: type[Model], *ids: str) -> Iterator[None]:
    """Another connection has these rows locked for the block.

    This thread, and a connection that is opened in the block, waits WAIT_SECONDS for a lock.
    """
    table, key = model._meta.db_table, model._meta.pk.column
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            statement = f"SELECT * FROM {table} WHERE {key} IN %s ORDER BY {key} FOR UPDATE"
            cursor.execute(statement, [ids])
            assert len(cursor.fetchall()) == len(ids), "the rows to be locked are not there"
        with _short_waits():
            yield
    finally:
        other.close()


@contextmanager
def _short_waits() -> Iterator[None]:
    options = connections.settings[DEFAULT_DB_ALIAS]["OPTIONS"]
    usual = options["init_command"]
    options["init_command"], count = _WAIT.subn(f"innodb_lock_wait_timeout={WAIT_SECONDS}", usual)
    assert count == 1, usual
    connection.close()
    try:
        with override(lock_wait_seconds=WAIT_SECONDS):
            yield
    finally:
        options["init_command"] = usual
        connection.close()
