"""The fixtures of the approvals' suites."""

from tests.support.fixtures import server_db

__all__ = ["server_db"]
