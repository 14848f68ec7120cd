"""Fixtures of the tests of the test support."""

import contextlib

import MySQLdb
import pytest

from tests.support.mysql_proxy import MysqlProxy
from tests.support.provider import ProviderProcess


@pytest.fixture(scope="package")
def provider_process():
    with ProviderProcess() as running:
        yield running


@pytest.fixture
def provider(provider_process):
    provider_process.reset()
    return provider_process


@pytest.fixture
def operation(request):
    return request.node.name[:100]


@pytest.fixture
def proxy(mysql_server, mysql_schema):
    with MysqlProxy(mysql_server.host, mysql_server.port) as proxy:
        yield proxy


@pytest.fixture
def direct(mysql_server, mysql_schema):
    """A connection beside the proxy, autocommit on: it sees what is really there."""
    schema = mysql_schema.rpartition("/")[2]
    with contextlib.closing(mysql_server.connect(schema)) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE work (id INT PRIMARY KEY, state VARCHAR(20)) ENGINE=InnoDB")
        yield cursor


@pytest.fixture
def connect(proxy, mysql_schema):
    """Connections through the proxy, as the product's driver makes them: autocommit off."""
    opened = []

    def one(**options):
        connection = MySQLdb.connect(
            host=proxy.host,
            port=proxy.port,
            user="root",
            database=mysql_schema.rpartition("/")[2],
            charset="utf8mb4",
            **options,
        )
        opened.append(connection)
        return connection

    yield one
    for connection in opened:
        with contextlib.suppress(MySQLdb.Error):
            connection.close()
