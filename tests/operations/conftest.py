"""The fixtures of the suites of operations."""

from tests.support.fixtures import server_db

__all__ = ["server_db"]
