"""The fixtures of the state store's suites."""

from tests.support.fixtures import server_db

__all__ = ["server_db"]
