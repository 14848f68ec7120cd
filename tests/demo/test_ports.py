"""The demo keeps its port, so that a start is no new version of its service and its tool."""

import socket
from collections.abc import Iterator

import pytest

from kernel.demo import data, launcher
from kernel.errors import InvalidInput
from kernel.models import Service, Tool
from tests.support.agent import STORE
from tests.support.product import make_account

pytestmark = pytest.mark.usefixtures("kernel_db")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else has."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def start(environ: dict[str, str]) -> str:
    """What `standalone` does at each start, up to the rows."""
    with launcher.start_on_one_of(data.ports(environ)) as provider:
        data.ensure_demo_service(provider_url=provider.url)
        data.ensure_demo_agent(url=provider.url, account_id="demo", store=STORE)
        return provider.url


def test_while_the_usual_port_is_taken_the_demo_stays_where_it_was(taken: int) -> None:
    make_account("demo")
    environ = {"BAILING_DEMO_PORT": str(taken)}
    first = start(environ)
    assert f":{taken}" not in first
    assert start(environ) == first
    assert (Service.objects.get().version, Tool.objects.get().version) == (1, 1)


def test_the_port_that_was_asked_for_comes_first_then_the_last_one_then_the_usual_one() -> None:
    usual = data.PORT
    assert data.ports({}) == [usual, 0]
    assert data.ports({"BAILING_DEMO_PORT": "0"}) == [0]
    data.ensure_demo_service(provider_url="http://127.0.0.1:40001")
    assert data.ports({}) == [40001, usual, 0]
    assert data.ports({"BAILING_DEMO_PORT": "40002"}) == [40002, 40001, 0]
    assert data.ports({"BAILING_DEMO_PORT": "0"}) == [0], "asked for: any that is free"
    Service.objects.update(base_url="https://api.example.com/v1")
    assert data.ports({}) == [usual, 0]


@pytest.mark.parametrize("text", ["many", "-1", "65536", "nan"])
def test_a_port_that_is_none_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InvalidInput, match="BAILING_DEMO_PORT must be a number from 0 to 65535"):
        data.ports({"BAILING_DEMO_PORT": text})
