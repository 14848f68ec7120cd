"""Who may act: API tokens, signing keys and people."""

from kernel.access.people import ROLES, add_person, change_person, ensure_roles, list_people
from kernel.access.signing_keys import (
    accept_message,
    active_secrets,
    add_signing_key,
    list_signing_keys,
    purge_receipts,
    revoke_signing_key,
)
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
    "accept_message",
    "active_secrets",
    "add_person",
    "add_signing_key",
    "authenticate",
    "change_person",
    "ensure_roles",
    "issue_token",
    "list_people",
    "list_signing_keys",
    "list_tokens",
    "purge_receipts",
    "revoke_signing_key",
    "revoke_token",
    "sync_environment_tokens",
]
