"""Where a case of the sweep stands: a database that is set back between two cases, cheaply.

On SQLite a fresh database is a copy of a file; on MariaDB and MySQL one schema per flow is emptied
and filled again from a second one, inside the server.
"""

import contextlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import MySQLdb.cursors

from tests.support.environment import child_environment
from tests.support.mariadb_server import Server
from tests.support.schemas import Schemas
from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
SQLITE, MYSQL = "sqlite", "mysql"
Row = dict[str, Any]


class Ground(Protocol):
    """The database of one flow. `engine`: sqlite or mysql, which is also MariaDB."""

    engine: str
    url: str

    def keep(self) -> None:
        """Every later case begins with what is there now."""

    def set_back(self) -> None:
        """Back to what was kept. No process may work on it any more."""

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Rows of a SELECT beside every verb."""

    def wait_alone(self) -> None:
        """Until nothing of a dead process holds a lock."""

    def close(self) -> None:
        """Throw it away."""


class SqliteGround:
    """A file, and the copy it is set back to."""

    engine = SQLITE

    def __init__(self, migrated: Path, directory: Path, name: str):
        self._file = directory / f"{name}.sqlite3"
        self._kept = directory / f"{name}.kept.sqlite3"
        self.url = f"sqlite:///{self._file}"
        self._remove()
        shutil.copyfile(migrated, self._file)

    def keep(self) -> None:
        with contextlib.closing(sqlite3.connect(self._file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copyfile(self._file, self._kept)

    def set_back(self) -> None:
        self._remove()
        shutil.copyfile(self._kept, self._file)

    def rows(self, statement: str, *values: Any) -> list[Row]:
        with contextlib.closing(sqlite3.connect(self._file)) as connection:
            connection.row_factory = sqlite3.Row
            found = connection.execute(statement.replace("%s", "?"), values)
            return [dict(row) for row in found.fetchall()]

    def wait_alone(self) -> None:
        """A lock of a file ends with its process."""

    def close(self) -> None:
        self._remove()
        self._kept.unlink(missing_ok=True)

    def _remove(self) -> None:
        for tail in ("", "-wal", "-shm"):
            Path(f"{self._file}{tail}").unlink(missing_ok=True)


class MysqlGround:
    """A schema, and a second one with what it is set back to."""

    engine = MYSQL

    def __init__(self, server: Server, schemas: Schemas):
        self._schemas = schemas
        self.url, self._kept_url = schemas.clone(), schemas.clone()
        self._name, self._kept = (urlsplit(url).path[1:] for url in (self.url, self._kept_url))
        self._beside = server.connect(self._name, cursorclass=MySQLdb.cursors.DictCursor)
        self._tables = [next(iter(row.values())) for row in self.rows("SHOW TABLES")]
        self._full: list[str] = []

    def keep(self) -> None:
        self._copy(source=self._name, target=self._kept)
        self._full = self._with_rows(self._kept)

    def set_back(self) -> None:
        self._copy(source=self._kept, target=self._name)

    def rows(self, statement: str, *values: Any) -> list[Row]:
        cursor = self._beside.cursor()
        cursor.execute(statement, values)
        return list(cursor.fetchall())

    def wait_alone(self) -> None:
        wait_until(
            lambda: (
                not self.rows(
                    "SELECT 1 FROM information_schema.innodb_trx t"
                    " JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id"
                    " WHERE p.db = %s LIMIT 1",
                    self._name,
                )
            ),
            about="the transactions of a dead process are rolled back",
            look_every=0.2,  # the server keeps its list for 0.1 s after each look
        )

    def newest_connection(self) -> int:
        """The id of the server's newest connection; ids only grow."""
        (row,) = self.rows("SELECT MAX(id) AS id FROM information_schema.processlist")
        return int(row["id"])

    def waits_for_a_lock(self, *, newer_than: int) -> bool:
        """Whether a transaction on this schema, of a newer connection, waits for a lock."""
        return bool(
            self.rows(
                "SELECT 1 FROM information_schema.innodb_trx t"
                " JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id"
                " WHERE p.db = %s AND p.id > %s AND t.trx_state = 'LOCK WAIT' LIMIT 1",
                self._name,
                newer_than,
            )
        )

    def close(self) -> None:
        self._beside.close()
        self._schemas.drop(self.url)
        self._schemas.drop(self._kept_url)

    def _copy(self, *, source: str, target: str) -> None:
        full = self._full if source == self._kept else self._with_rows(source)
        cursor = self._beside.cursor()
        cursor.execute("SET FOREIGN_KEY_CHECKS = 0")
        cursor.execute("BEGIN")
        for name in self._with_rows(target):
            cursor.execute(f"DELETE FROM `{target}`.`{name}`")
        for name in full:
            cursor.execute(f"INSERT INTO `{target}`.`{name}` SELECT * FROM `{source}`.`{name}`")
        cursor.execute("COMMIT")

    def _with_rows(self, schema: str) -> list[str]:
        looks = [
            f"SELECT '{name}' AS name, EXISTS(SELECT 1 FROM `{schema}`.`{name}`) AS has_rows"
            for name in self._tables
        ]
        return [row["name"] for row in self.rows(" UNION ALL ".join(looks)) if row["has_rows"]]


@contextlib.contextmanager
def migrated_file(directory: Path) -> Iterator[Path]:
    """An SQLite file that `db_init` made."""
    path = directory / "migrated.sqlite3"
    command = [sys.executable, "manage.py", "db_init"]
    environment = child_environment(database_url=f"sqlite:///{path}")
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"db_init failed:\n{ended.stdout}{ended.stderr}"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    yield path
    path.unlink(missing_ok=True)
