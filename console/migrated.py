"""Screens of a later migration: until db_init applied it they say so, with 503 (H3)."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from console.responses import RETRY_SECONDS, wants_part
from kernel import schema
from kernel.errors import Unavailable

View = Callable[..., HttpResponseBase]


def needs_migration(*names: str) -> Callable[[View], View]:
    """The view where all these migrations are applied, else a page that names the missing one."""

    def declare(view: View) -> View:
        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                for name in names:
                    schema.require(name)
            except Unavailable as error:
                return _unavailable(request, error)
            return view(request, *args, **kwargs)

        return checked

    return declare


def is_migrated(name: str = schema.AGENT_JOBS) -> bool:
    """Whether this migration is applied; asks the database until it was seen once."""
    return schema.is_applied(name)


def _unavailable(request: HttpRequest, error: Unavailable) -> HttpResponseBase:
    template = "console/_unavailable.html" if wants_part(request) else "console/unavailable.html"
    response = render(request, template, {"error": error}, status=error.status)
    response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response
