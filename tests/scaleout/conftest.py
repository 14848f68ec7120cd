"""Fixtures of the scale-out suite: a broker of the run, a fleet per case."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scaleout.fleet import Fleet
from tests.support.house import House
from tests.support.redis_server import RedisServer, private_redis


@pytest.fixture(scope="session")
def the_redis() -> Iterator[RedisServer]:
    """The broker of the run."""
    with private_redis() as redis:
        yield redis


@pytest.fixture
def redis(the_redis: RedisServer) -> RedisServer:
    """The broker, running and empty."""
    the_redis.restart()
    return the_redis


@pytest.fixture
def fleet(house: House, redis: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    """The processes of a case."""
    made = Fleet(database_url=house.url, broker_url=redis.url, directory=tmp_path)
    yield made
    made.close()
