"""Who may act: API tokens and people."""

from kernel.access.people import ROLES, add_person, change_person, ensure_roles, list_people
from kernel.access.tokens import (
    SCOPES,
    Caller,
    authenticate,
    issue_token,
    list_tokens,
    revoke_token,
    sync_environment_tokens,
)

__all__ = [
    "ROLES",
    "SCOPES",
    "Caller",
    "add_person",
    "authenticate",
    "change_person",
    "ensure_roles",
    "issue_token",
    "list_people",
    "list_tokens",
    "revoke_token",
    "sync_environment_tokens",
]
