"""Fixtures of the scale-out suite: a broker of the run, a fleet per case.

BAILING_SCALEOUT_BROKER=rabbitmq runs the large case on RabbitMQ instead of Redis.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scaleout.fleet import Fleet
from tests.support.house import House
from tests.support.rabbitmq_server import RabbitServer, private_rabbitmq
from tests.support.redis_server import RedisServer, private_redis

Broker = RedisServer | RabbitServer
NAME = os.environ.get("BAILING_SCALEOUT_BROKER") or "redis"


@pytest.fixture(scope="session")
def the_redis() -> Iterator[RedisServer]:
    """The Redis of the run."""
    with private_redis() as redis:
        yield redis


@pytest.fixture
def redis(the_redis: RedisServer) -> RedisServer:
    """Redis, running and empty."""
    the_redis.restart()
    return the_redis


@pytest.fixture(scope="session")
def the_rabbit() -> Iterator[RabbitServer]:
    """The RabbitMQ of the run."""
    with private_rabbitmq() as rabbit:
        yield rabbit


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Broker:
    """What carries the messages: Redis where a case asks for Redis, else what the run names."""
    is_redis = NAME == "redis" or "redis" in request.fixturenames
    found: Broker = request.getfixturevalue("redis" if is_redis else "the_rabbit")
    return found


@pytest.fixture
def fleet(house: House, broker: Broker, tmp_path: Path) -> Iterator[Fleet]:
    """The processes of a case."""
    made = Fleet(database_url=house.url, broker_url=broker.url, directory=tmp_path)
    yield made
    made.close()
