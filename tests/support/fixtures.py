"""Fixtures of the suites that run the product against the independent provider."""

from collections.abc import Iterator

import pytest
from django.db import connection

from tests.support.product import make_account, make_service
from tests.support.provider import ProviderProcess
from tests.support.tool_server import ToolServer


@pytest.fixture(scope="session")
def provider_process() -> Iterator[ProviderProcess]:
    with ProviderProcess() as process:
        yield process


@pytest.fixture
def provider(provider_process: ProviderProcess) -> ProviderProcess:
    """The provider without rules, and with an empty file of calls."""
    provider_process.reset()
    provider_process.log.write_bytes(b"")
    return provider_process


@pytest.fixture
def shop(kernel_db: None, provider: ProviderProcess) -> ProviderProcess:
    """An account `acme` without a cap, and the service `gpt` on the provider."""
    make_account()
    make_service(base_url=provider.base_url)
    return provider


@pytest.fixture
def server_db(kernel_db: None) -> None:
    """kernel_db, for what only a database server does; the suite `mysql` runs these tests."""
    if connection.vendor != "mysql":
        pytest.skip("this is about MySQL and MariaDB: the suite `mysql` runs it")


@pytest.fixture(scope="session")
def tool_process() -> Iterator[ToolServer]:
    with ToolServer() as process:
        yield process


@pytest.fixture
def tool_server(tool_process: ToolServer) -> ToolServer:
    """The business service without rules, and with an empty file of calls."""
    tool_process.reset()
    tool_process.log.write_bytes(b"")
    return tool_process
