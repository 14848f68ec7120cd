"""Fixtures of the crash suite, the races and the histories; and the closing line about faults."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.desk import Desk
from tests.support.faults import RECORD_VARIABLE, FaultRecord
from tests.support.house import House
from tests.support.mariadb_server import Server
from tests.support.post_room import PostRoom
from tests.support.provider import ProviderProcess
from tests.support.schemas import Schemas
from tests.support.tool_server import ToolServer

RECORD = pytest.StashKey[FaultRecord]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RECORD] = FaultRecord()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Planned, fired, violations: the line `make crash` ends with."""
    record = config.stash[RECORD]
    if record.cases:
        terminalreporter.write_line(record.line())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave the record of this run where the report looks for it."""
    if path := os.environ.get(RECORD_VARIABLE):
        session.config.stash[RECORD].write(Path(path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """A case that passed without asking for K2 has proven nothing."""
    result = yield
    house = getattr(item, "funcargs", {}).get("house")
    assert not isinstance(house, House) or house.verified, "a case ends with house.verify()"
    return result


@pytest.fixture(scope="session")
def fault_record(request: pytest.FixtureRequest) -> FaultRecord:
    """The one record of the run."""
    return request.config.stash[RECORD]


@pytest.fixture(scope="session")
def the_provider() -> Iterator[ProviderProcess]:
    """The independent provider of the run; its file of calls is one for all cases."""
    with ProviderProcess() as provider:
        yield provider


@pytest.fixture(scope="session")
def the_shop() -> Iterator[ToolServer]:
    """The independent business service of the run; each case calls it by a path of its own."""
    with ToolServer() as shop:
        yield shop


@pytest.fixture
def desk(house: House, the_shop: ToolServer) -> Desk:
    """A house whose jobs ask a person before they call the shop."""
    made = Desk(house, the_shop)
    made.open()
    return made


@pytest.fixture
def room(house: House, the_shop: ToolServer) -> PostRoom:
    """A house whose messages go to a receiver and an executor."""
    made = PostRoom(house, the_shop)
    made.open()
    return made


@pytest.fixture(scope="session")
def schemas(mysql_server: Server) -> Iterator[Schemas]:
    """Migrated once on the run's server, cloned for each case."""
    made = Schemas(mysql_server)
    yield made
    made.close()


@pytest.fixture
def house(
    mysql_server: Server,
    schemas: Schemas,
    the_provider: ProviderProcess,
    fault_record: FaultRecord,
    django_db_blocker: Any,
) -> Iterator[House]:
    """One case, with a random schema of its own. It must end with `house.verify()`."""
    url = schemas.clone()
    made = House(server=mysql_server, url=url, provider=the_provider, record=fault_record)
    with django_db_blocker.unblock():
        try:
            made.open()
            yield made
            fault_record.cases += 1
            if not made.mutant:
                fault_record.planned += len(made.faults)
                fault_record.fired += sum(fault.has_fired() for fault in made.faults)
        finally:
            made.close()
            schemas.drop(url)
