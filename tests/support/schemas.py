"""A migrated schema per case in a fraction of a second; Django on it in the test's own process."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from django.db import connections
from django.db.utils import DEFAULT_DB_ALIAS, load_backend

from console.database import database
from tests.support.environment import child_environment
from tests.support.mariadb_server import Server

ROOT = Path(__file__).resolve().parents[2]


class Schemas:
    """Clones of one schema that `db_init` made on a server; the next one is made ahead."""

    def __init__(self, server: Server, *, like: "Schemas | None" = None):
        self._server = server
        self._template = server.create_schema()
        if like is not None and like.product == self.product:
            self._copy(like)
        else:
            self._db_init()
        self._tables = self._describe()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="schemas")
        self._next = self._worker.submit(self._clone)

    @property
    def product(self) -> str:
        """MariaDB or MySQL: their definitions of tables differ."""
        return self._server.version.split()[0]

    def _db_init(self) -> None:
        command = [sys.executable, "manage.py", "db_init"]
        environment = child_environment(database_url=self._template)
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, f"db_init failed:\n{ended.stdout}{ended.stderr}"

    def _copy(self, like: "Schemas") -> None:
        """What the other server's db_init made, through this process."""
        with (
            contextlib.closing(like._server.connect(_name(like._template))) as source,
            contextlib.closing(self._server.connect(_name(self._template))) as target,
        ):
            reading, writing = source.cursor(), target.cursor()
            writing.execute("SET FOREIGN_KEY_CHECKS = 0")
            for name, definition in like._tables.items():
                writing.execute(definition)
                reading.execute(f"SELECT * FROM `{name}`")
                values = ", ".join(["%s"] * len(reading.description))
                writing.executemany(f"INSERT INTO `{name}` VALUES ({values})", reading.fetchall())

    def clone(self) -> str:
        """The URL of a fresh schema with every table, and the rows db_init leaves behind."""
        url = self._next.result()
        self._next = self._worker.submit(self._clone)
        return url

    def drop(self, url: str) -> None:
        """Drop a clone, some time soon."""
        self._worker.submit(self._server.drop_schema, url)

    def close(self) -> None:
        """Drop everything that was made."""
        self._server.drop_schema(self._next.result())
        self._worker.shutdown()
        self._server.drop_schema(self._template)

    def _clone(self) -> str:
        url = self._server.create_schema()
        with contextlib.closing(self._server.connect(_name(url))) as connection:
            cursor = connection.cursor()
            cursor.execute("SET FOREIGN_KEY_CHECKS = 0")
            for name, definition in self._tables.items():
                cursor.execute(definition)
                source = f"`{_name(self._template)}`.`{name}`"
                cursor.execute(f"INSERT INTO `{name}` SELECT * FROM {source}")
        return url

    def _describe(self) -> dict[str, str]:
        with contextlib.closing(self._server.connect(_name(self._template))) as connection:
            cursor = connection.cursor()
            cursor.execute("SHOW TABLES")
            names = [name for (name,) in cursor.fetchall()]
            definitions = {}
            for name in names:
                cursor.execute(f"SHOW CREATE TABLE `{name}`")
                definitions[name] = cursor.fetchone()[1]
        return definitions


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


@contextlib.contextmanager
def django_on(url: str) -> Iterator[None]:
    """This thread's default connection, and with it every verb, on another database for a block."""
    entry = database(url, default_path=Path("unused"))
    complete = connections.configure_settings({DEFAULT_DB_ALIAS: entry})
    backend = load_backend(entry["ENGINE"])
    wrapper = backend.DatabaseWrapper(complete[DEFAULT_DB_ALIAS], DEFAULT_DB_ALIAS)
    before = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = wrapper
    try:
        yield
    finally:
        wrapper.close()
        connections[DEFAULT_DB_ALIAS] = before
