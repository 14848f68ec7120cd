"""The fixtures of the delivery suites."""

from tests.support.fixtures import server_db

__all__ = ["server_db"]
