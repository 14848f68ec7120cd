"""The fixtures of the suites about jobs: the provider, the business service, an account."""

from tests.support.fixtures import (
    provider,
    provider_process,
    server_db,
    shop,
    tool_process,
    tool_server,
)

__all__ = ["provider", "provider_process", "server_db", "shop", "tool_process", "tool_server"]
