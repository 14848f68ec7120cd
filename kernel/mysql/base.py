"""Django's backend for MySQL, where a transaction begins with BEGIN.

Django switches autocommit off before and on after each transaction: one round trip more.
"""

from django.db.backends.mysql import base
from django.db.backends.utils import debug_transaction


class DatabaseWrapper(base.DatabaseWrapper):
    """What Django looks for in a backend; everything else is inherited."""

    def _start_transaction_under_autocommit(self) -> None:
        # Called by atomic(), as on SQLite. COMMIT and ROLLBACK leave autocommit on.
        with debug_transaction(self, "BEGIN"), self.wrap_database_errors:
            self.connection.query("BEGIN")
