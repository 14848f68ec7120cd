"""The ground and the witnesses of the sweep: made once per run, set back between two cases."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.conftest import DATABASE
from tests.support.faults import FaultRecord
from tests.support.mysql_proxy import MysqlProxy
from tests.support.provider import ProviderProcess
from tests.support.sizes import FULL, proof_size
from tests.support.sweep import Scene, Witnesses
from tests.support.sweep_flows import FLOWS
from tests.support.sweep_ground import (
    MYSQL,
    SQLITE,
    Ground,
    MysqlGround,
    SqliteGround,
    migrated_file,
)
from tests.support.tool_server import ToolServer


def engines() -> list[str]:
    """SQLite in a run on SQLite; else both, and in full size the server alone."""
    if settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        return [SQLITE]
    return [MYSQL] if proof_size() == FULL else [SQLITE, MYSQL]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = metafunc.definition.iter_markers("parametrize")
    if "engine" in metafunc.fixturenames and all(mark.args[0] != "engine" for mark in marks):
        metafunc.parametrize("engine", engines())


@pytest.fixture(scope="session")
def the_receiver() -> Iterator[ToolServer]:
    """Who receives the messages of the run."""
    with ToolServer() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def witnesses(
    the_provider: ProviderProcess, the_shop: ToolServer, the_receiver: ToolServer
) -> Witnesses:
    return Witnesses(the_provider, the_shop, the_receiver)


@pytest.fixture(scope="session")
def migrated(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """A migrated SQLite file, copied for each flow."""
    request.config.stash.setdefault(DATABASE, f"SQLite {sqlite3.sqlite_version}")
    with migrated_file(tmp_path_factory.mktemp("sweep")) as path:
        yield path


@pytest.fixture
def scenes(
    engine: str,
    witnesses: Witnesses,
    fault_record: FaultRecord,
    request: pytest.FixtureRequest,
    django_db_blocker: Any,
) -> Iterator[Callable[[str], Scene]]:
    """Makes the scene of a flow, by name, on the engine of this test."""
    with django_db_blocker.unblock(), ExitStack() as stack:

        def make(name: str) -> Scene:
            ground: Ground
            proxy = None
            if engine == SQLITE:
                migrated = request.getfixturevalue("migrated")
                ground = SqliteGround(migrated, migrated.parent, name.replace(" ", "-"))
            else:
                server = request.getfixturevalue("mysql_server")
                ground = MysqlGround(server, request.getfixturevalue("schemas"))
                proxy = stack.enter_context(MysqlProxy(server.host, server.port))
            stack.callback(ground.close)
            return Scene(FLOWS[name], ground, witnesses, fault_record, proxy)

        yield make
