"""A row in somebody else's hands, as a host that vanished leaves it, on a server."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.db.models import Model

LOCK_WAIT_SECONDS = 1


@contextmanager
def held(model: type[Model], *ids: str) -> Iterator[None]:
    """Another connection holds these rows for the block; this one waits LOCK_WAIT_SECONDS."""
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@innodb_lock_wait_timeout")
        ((usual,),) = cursor.fetchall()
        cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", [LOCK_WAIT_SECONDS])
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(f"SELECT id FROM {table} WHERE id IN %s FOR UPDATE", [ids])
            assert len(cursor.fetchall()) == len(ids), "the rows to be held are not there"
        yield
    finally:
        other.rollback()
        other.close()
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", [usual])
