"""Fixtures of the tests of the test support."""

import pytest

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
