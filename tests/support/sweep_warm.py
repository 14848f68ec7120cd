"""Imported once by the server that the sweep's processes are forked from: what each would load."""

import importlib

import anyio._backends._asyncio  # noqa: F401
import pytest  # noqa: F401  - the main module of the test, which each fork imports by name
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.urls import get_resolver

from kernel.api.handler import ApiHandler
from kernel.http.client import _tls_context
from tests.support import sweep_child  # noqa: F401

for urlconf in (settings.API_URLCONF, settings.ROOT_URLCONF):
    importlib.import_module(urlconf)
    _ = get_resolver(urlconf).url_patterns
ApiHandler()
ASGIHandler()
_tls_context(None)
