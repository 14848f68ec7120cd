"""The session store: Django's database sessions, with a column that says whose each one is.

Until 0070 is applied they are Django's own rows, so that the console works meanwhile (H3); by that
migration everybody signs in again.
"""

from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.contrib.sessions.base_session import AbstractBaseSession
from django.contrib.sessions.models import Session

from kernel import clock, schema, sql
from kernel.models import ConsoleSession


class SessionStore(DatabaseStore):
    """Rows of `bz_sessions`, so that a person's sign-ins can be listed and ended."""

    @classmethod
    def get_model_class(cls) -> type[AbstractBaseSession]:
        return ConsoleSession if schema.is_applied(schema.SIGN_IN) else Session

    def _get_session_from_db(self) -> AbstractBaseSession | None:
        """As Django's; its statement is written out, for every page and act begins with it."""
        key, alive = {"session_key": self.session_key}, "AND expire_date > %s"
        found = sql.rows(self.model, key, more=alive, parameters=[clock.now()])
        if not found:
            self._session_key = None
        return found[0] if found else None

    def create_model_instance(self, data: dict[str, Any]) -> AbstractBaseSession:
        row = super().create_model_instance(data)
        if isinstance(row, ConsoleSession):
            person_id = str(data.get(SESSION_KEY, ""))
            row.person_id = int(person_id) if person_id.isdecimal() else None
        return row
