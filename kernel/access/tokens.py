"""API tokens: 128 random bits, shown once, stored as sha256 and prefix, scoped, revocable."""

import base64
import hashlib
import hmac
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass

from kernel import audit, clock
from kernel.errors import Forbidden, InvalidInput, NotFound, Unauthorized
from kernel.ids import check_text, new_id
from kernel.models import Account, Token
from kernel.transactions import insert_new_in_tx, reading, transaction

log = logging.getLogger(__name__)

SCOPES = {
    "usage:write": "send, dispatch and cancel model requests",
    "usage:read": "read model requests and the account",
    "jobs:write": "submit and cancel jobs",
    "jobs:read": "read jobs",
    "approvals:read": "read questions to people",
    "approvals:decide": "approve and deny",
    "deliveries:write": "send messages and replay dead letters",
    "deliveries:read": "read notifications and dead letters",
    "agent": "call tools as an agent that drives itself",
    "executor": "claim and report jobs",
}
ENVIRONMENT = {
    "BAILING_API_TOKEN": tuple(scope for scope in SCOPES if scope != "executor"),
    "BAILING_EXECUTOR_TOKEN": ("executor",),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: a token, its account and what it may do."""

    token_id: str
    account_id: str
    scopes: frozenset[str]

    def require(self, scope: str) -> None:
        """Forbidden unless the token has `scope`."""
        if scope not in self.scopes:
            raise Forbidden(
                f"this token lacks the scope {scope}",
                scope=scope,
                next_action="Issue a token with this scope.",
            )

    @property
    def actor(self) -> audit.Actor:
        return audit.Actor("token", self.token_id)


@transaction
def issue_token(
    *, account_id: str, name: str, scopes: Iterable[str], actor: audit.Actor
) -> tuple[Token, str]:
    """A new token and its secret; the secret is shown once and never stored.

    InvalidInput, NotFound.
    """
    secret = "bz_" + base64.urlsafe_b64encode(os.urandom(24)).decode()
    return _insert(secret, account_id, name, scopes, actor, origin="issued"), secret


@transaction
def revoke_token(*, token_id: str, actor: audit.Actor, reason: str = "") -> bool:
    """End a token; False when it was revoked before. NotFound.

    Other processes may still accept it for `token_cache_seconds`.
    """
    if not Token.objects.filter(id=token_id).exists():
        raise NotFound(f"no token {token_id}")
    if not Token.objects.filter(id=token_id, revoked_at=None).update(revoked_at=clock.db_now()):
        return False
    audit.append_in_tx(
        actor=actor, action="token.revoke", kind="token", object_id=token_id, reason=reason
    )
    return True


@reading
def authenticate(*, secret: str) -> Caller:
    """The caller behind a secret. Unauthorized for anything else, in constant time per row."""
    digest = hashlib.sha256(secret.encode(errors="replace")).hexdigest()
    row = Token.objects.filter(secret_sha256=digest, revoked_at=None).first()
    if row is None or not hmac.compare_digest(row.secret_sha256, digest):
        raise Unauthorized("This token is not known, or was revoked.")
    return Caller(row.id, row.account_id, frozenset(row.scopes.split()))


@reading
def list_tokens(*, account_id: str = "") -> list[Token]:
    """Tokens, newest first; all accounts unless one is named."""
    rows = Token.objects.order_by("-created_at", "-id")
    return list((rows.filter(account_id=account_id) if account_id else rows)[:500])


@transaction
def sync_environment_tokens(*, secrets: dict[str, str], account_id: str) -> None:
    """Make the tokens of the environment rows; a changed one replaces and revokes the earlier.

    A row of an earlier version gains the scopes that came since. A revoked secret stays revoked: it
    is left out, with a warning, until it is replaced.
    """
    actor = audit.Actor("system", "start")
    for name, scopes in ENVIRONMENT.items():
        secret = secrets.get(name, "")
        digest = hashlib.sha256(secret.encode()).hexdigest()
        earlier = Token.objects.filter(origin="environment", name=name, revoked_at=None)
        for row in earlier:
            if secret and row.secret_sha256 == digest:
                _rescope(row, scopes, actor)
                break
            Token.objects.filter(id=row.id).update(revoked_at=clock.db_now())
            audit.append_in_tx(
                actor=actor, action="token.revoke", kind="token", object_id=row.id, reason=name
            )
        else:
            if Token.objects.filter(secret_sha256=digest).exists():
                log.warning("%s is revoked or in use already; give it a fresh secret", name)
            elif len(secret) >= 16:
                _insert(secret, account_id, name, scopes, actor, origin="environment")


def _rescope(row: Token, scopes: Iterable[str], actor: audit.Actor) -> None:
    wanted = sorted(set(scopes))
    if row.scopes.split() == wanted:
        return
    Token.objects.filter(id=row.id).update(scopes=" ".join(wanted))
    audit.append_in_tx(
        actor=actor,
        action="token.scopes",
        kind="token",
        object_id=row.id,
        before={"scopes": row.scopes.split()},
        after={"scopes": wanted},
    )


def _insert(
    secret: str,
    account_id: str,
    name: str,
    scopes: Iterable[str],
    actor: audit.Actor,
    *,
    origin: str,
) -> Token:
    wanted = sorted(set(scopes))
    unknown = [scope for scope in wanted if scope not in SCOPES]
    if unknown or not wanted:
        raise InvalidInput(f"scopes are {', '.join(SCOPES)}", field="scopes")
    name = check_text(name, field="name", chars_max=120)
    if not Account.objects.filter(id=account_id).exists():
        raise NotFound(f"no account {account_id}", field="account_id")
    row = Token(
        id=new_id("tok"),
        account_id=account_id,
        name=name,
        scopes=" ".join(wanted),
        prefix=secret[:8],
        secret_sha256=hashlib.sha256(secret.encode()).hexdigest(),
        origin=origin,
        created_by=f"{actor.kind}:{actor.id}"[:160],
        created_at=clock.db_now(),
    )
    insert_new_in_tx(row)
    audit.append_in_tx(
        actor=actor,
        action="token.issue",
        kind="token",
        object_id=row.id,
        after={"account_id": account_id, "name": row.name, "scopes": wanted, "prefix": row.prefix},
    )
    return row
