"""The ground and the witnesses of the sweep: made once per run, set back between two cases."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

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
    """SQLite alone in a run on SQLite; both in the everyday run; the server alone in its full run."""
    if settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        return [SQLITE]
    return [MYSQL] if proof_size() == FULL else [SQLITE, MYSQL]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine", engines(), scope="session")


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
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with migrated_file(tmp_path_factory.mktemp("sweep")) as path:
        yield path


@pytest.fixture
def scene_of(
    engine: str,
    witnesses: Witnesses,
    fault_record: FaultRecord,
    request: pytest.FixtureRequest,
    django_db_blocker: Any,
) -> Iterator[Callable[[str], Scene]]:
    """Makes the scene of a flow, by name, on the engine of this test."""
    grounds: list[Ground] = []
    proxies: list[MysqlProxy] = []

    def make(name: str) -> Scene:
        proxy = None
        if engine == SQLITE:
            migrated = request.getfixturevalue("migrated")
            ground: Ground = SqliteGround(migrated, migrated.parent, name)
        else:
            server = request.getfixturevalue("mysql_server")
            ground = MysqlGround(server, request.getfixturevalue("schemas"))
            proxy = MysqlProxy(server.host, server.port).start()
            proxies.append(proxy)
        grounds.append(ground)
        return Scene(FLOWS[name], ground, witnesses, fault_record, proxy)

    with django_db_blocker.unblock():
        try:
            yield make
        finally:
            for proxy in proxies:
                proxy.stop()
            for ground in grounds:
                ground.close()
