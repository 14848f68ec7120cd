"""Fixtures of the HTTP door, for tests that scrape a real one."""

from tests.api.conftest import api, provider, provider_process, shop

__all__ = ["api", "provider", "provider_process", "shop"]
