"""Fixtures for the screens' tests: the product's own addresses, people signed in, a few rows."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from kernel.access import ensure_roles
from tests.support import lives, work_data
from tests.support.fixtures import provider, provider_process, server_db, shop
from tests.support.pages import PageForm, form_to

__all__ = ["provider", "provider_process", "server_db", "shop"]

SignIn = Callable[..., Client]


@pytest.fixture(autouse=True)
def console_settings(settings: Any) -> Iterator[None]:
    """The real addresses, on any host; a fresh throttle."""
    settings.ALLOWED_HOSTS = ["*"]
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def acme(db: None) -> None:
    """The account `acme`, capped, and the service `gpt`."""
    lives.open_account()
    lives.add_service()


@pytest.fixture
def operator(signed_in: SignIn) -> Client:
    return signed_in("operator")


@pytest.fixture
def admin(signed_in: SignIn) -> Client:
    return signed_in("admin")


def rendered(client: Client, name: str, *args: str) -> PageForm:
    """The form that the page of this address shows, as the browser would send it."""
    address = reverse(name, args=args)
    return form_to(client.get(address).text, address)


def send(client: Client, form: PageForm, **values: Any) -> Any:
    """Send a rendered form with these values typed in."""
    return client.post(form.action, {**form.fields, **values})


@pytest.fixture
def desk(db):
    """An account, its service, the tools and routes."""
    ensure_roles()
    lives.open_account(work_data.ACCOUNT)
    lives.add_service("gpt-main")
    work_data.tools_and_routes()


@pytest.fixture
def approver(signed_in):
    return signed_in("approver")
