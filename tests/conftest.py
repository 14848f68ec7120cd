"""Fixtures every test may use: a database for real commits, a server, the suite flags (K4)."""

import shutil
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections, transaction
from django.test.utils import setup_databases, teardown_databases
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests.support.environment import flag_is_set
from tests.support.mariadb_server import Server, the_server
from tests.support.owned import OwnedDirectory, remove_stale

pytest_plugins = ["tests.support.house_fixtures"]

SQLITE_PREFIX = "bz-sqlite-"
DEFAULT_FLAG = "BAILING_USAGE_TEST_MYSQL"
DATABASE_FIXTURES = {"kernel_db", "db", "transactional_db", "django_db_serialized_rollback"}
DATABASE = pytest.StashKey[str]()

# How long an example takes says how busy the machine is, and nothing about the product.
hypothesis_settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("tests")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "database: touches the database (set by itself)")
    config.addinivalue_line("markers", "server: needs a database server (set by itself)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what touches the database, so that `-m database` runs exactly that on another engine.

    `any_database` takes a test out of that: its claim is about the browser, not about rows. And
    mark what needs a server: `-m "not server"` starts none.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if "mysql_server" in fixtures:
            item.add_marker(pytest.mark.server)
        touches = fixtures & DATABASE_FIXTURES or item.get_closest_marker("django_db")
        if touches and not item.get_closest_marker("any_database"):
            item.add_marker(pytest.mark.database)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """`@pytest.mark.mysql("FLAG")` skips, and creates nothing, unless FLAG is set (K4)."""
    for marker in item.iter_markers("mysql"):
        for flag in marker.args or (DEFAULT_FLAG,):
            if not flag_is_set(flag):
                pytest.skip(f"{flag} is not set: this needs a database server of its own")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name the database the run used: a claim about MySQL needs a run on MySQL (K5)."""
    terminalreporter.write_line(f"database: {config.stash.get(DATABASE, 'none was used')}")


@pytest.fixture(scope="session")
def mysql_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The run's database server: the given one or a private one, started when first asked for."""
    with the_server() as server:
        request.config.stash[DATABASE] = str(server)
        yield server


@pytest.fixture
def mysql_schema(mysql_server: Server) -> Iterator[str]:
    """URL of an empty schema with a random name, dropped afterwards."""
    with mysql_server.schema() as url:
        yield url


@pytest.fixture(scope="session")
def database_place(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fill in where the database of this run lives: a directory of ours, or the server."""
    entry = settings.DATABASES["default"]
    if entry["ENGINE"].endswith("mysql"):
        server = request.getfixturevalue("mysql_server")
        entry.update(HOST=server.host, PORT=server.port, USER=server.user, PASSWORD=server.password)
        yield
        return
    request.config.stash[DATABASE] = f"SQLite {sqlite3.sqlite_version}"
    remove_stale(SQLITE_PREFIX)
    directory = OwnedDirectory.create(SQLITE_PREFIX)
    entry["NAME"] = entry["TEST"]["NAME"] = str(directory.path / "test.sqlite3")
    yield
    directory.remove()


@pytest.fixture(scope="session")
def django_db_setup(
    database_place: None, django_test_environment: None, django_db_blocker: Any
) -> Iterator[None]:
    """Create and migrate the run's database; pytest-django's own needs a mark on each test."""
    with django_db_blocker.unblock():
        before = setup_databases(
            verbosity=0, interactive=False, aliases={"default"}, serialized_aliases=set()
        )
    yield
    with django_db_blocker.unblock():
        connections.close_all()
        teardown_databases(before, verbosity=0)
    shutil.rmtree(settings.VAR_DIR, ignore_errors=True)  # db_init's lock file


@pytest.fixture(scope="session")
def tables_to_empty(django_db_setup: None, django_db_blocker: Any) -> list[str]:
    """The tables that are empty after the migrations; the others hold rows every test relies on."""
    with django_db_blocker.unblock():
        names = connection.introspection.table_names()
        full = set(_tables_with_rows(names))
        connections.close_all()
    return [name for name in names if name not in full]


@pytest.fixture
def kernel_db(tables_to_empty: list[str], django_db_blocker: Any) -> Iterator[None]:
    """A migrated, empty database for real commits from any thread; emptied again afterwards.

    No transaction is around the test, so `@transaction`, threads and asyncio work as in production.
    """
    with django_db_blocker.unblock():
        yield
        connections.close_all()
        _empty(tables_to_empty)
        connections.close_all()


def _tables_with_rows(names: list[str]) -> list[str]:
    quote = connection.ops.quote_name
    looks = [f"SELECT '{name}', EXISTS(SELECT 1 FROM {quote(name)})" for name in names]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(looks))
        return [name for name, has_rows in cursor.fetchall() if has_rows]


def _empty(names: list[str]) -> None:
    with connection.constraint_checks_disabled(), transaction.atomic():
        for name in _tables_with_rows(names):
            with connection.cursor() as cursor:
                cursor.execute(f"DELETE FROM {connection.ops.quote_name(name)}")
