"""The fixtures of the suites that run the product against the provider."""

from tests.support.fixtures import provider, provider_process, server_db, shop

__all__ = ["provider", "provider_process", "server_db", "shop"]
