"""The session store: Django's database sessions, with a column that says whose each one is."""

from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore

from kernel.models import ConsoleSession


class SessionStore(DatabaseStore):
    """Rows of `bz_sessions`, so that a person's sign-ins can be listed and ended."""

    @classmethod
    def get_model_class(cls) -> type[ConsoleSession]:
        return ConsoleSession

    def create_model_instance(self, data: dict[str, Any]) -> ConsoleSession:
        row = super().create_model_instance(data)
        assert isinstance(row, ConsoleSession)
        person_id = str(data.get(SESSION_KEY, ""))
        row.person_id = int(person_id) if person_id.isdecimal() else None
        return row
