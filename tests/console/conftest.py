"""Fixtures for the console's tests: signed-in clients by role, the tests' own addresses."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.template import Context, Template
from django.test import Client, RequestFactory

from kernel.access import ensure_roles
from tests.console import urls

SignIn = Callable[..., Client]


@pytest.fixture(autouse=True)
def console_settings(settings: Any) -> Iterator[None]:
    """The tests' addresses and templates; a fresh throttle and no acts."""
    settings.ROOT_URLCONF = "tests.console.urls"
    settings.CONSOLE_STYLEGUIDE = True
    settings.ALLOWED_HOSTS = ["*"]
    templates = Path(__file__).parent / "templates"
    settings.TEMPLATES = [
        {**settings.TEMPLATES[0], "DIRS": [templates, *settings.TEMPLATES[0]["DIRS"]]}
    ]
    cache.clear()
    urls.acts.clear()
    yield
    cache.clear()


@pytest.fixture
def person(db: None) -> Callable[..., User]:
    """Makes a user with roles: `person("olga", "operator")`."""

    def make(name: str, *roles: str) -> User:
        ensure_roles()
        user = User.objects.create_user(name, password="correct horse")
        user.groups.set(Group.objects.filter(name__in=roles))
        return user

    return make


@pytest.fixture
def signed_in(person: Callable[..., User]) -> SignIn:
    """A signed-in test client: `signed_in("operator")`; keyword arguments go to Client."""

    def make(*roles: str, **options: Any) -> Client:
        client = Client(**options)
        client.force_login(person("-".join(roles) or "nobody", *roles))
        return client

    return make


@pytest.fixture
def render(rf: RequestFactory) -> Callable[..., str]:
    """Renders template text with `{% load console %}` and a request."""

    def make(text: str, **context: Any) -> str:
        request = rf.get("/here")
        request.user = context.pop("user", None)
        template = Template("{% load console %}" + text)
        return template.render(Context({"request": request, **context}))

    return make
