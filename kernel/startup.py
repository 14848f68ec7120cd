"""What the environment says at each start: the administrator, the API tokens, a signing key."""

from collections.abc import Mapping
from contextlib import suppress

from kernel import schema
from kernel.access.people import ensure_admin, ensure_roles
from kernel.access.signing_keys import ENVIRONMENT_KEY, sync_environment_key
from kernel.access.tokens import ENVIRONMENT, sync_environment_tokens
from kernel.audit import Actor
from kernel.errors import Conflict, Unavailable
from kernel.models import Account, Token
from kernel.transactions import reading
from kernel.usage.accounts import create_account

START = Actor("system", "start")


def apply_environment(*, environ: Mapping[str, str], demo: bool) -> str:
    """Make roles, administrator, first account and token rows what `environ` says. Safe to repeat.

    Returns the account that the environment's tokens belong to: `demo` when this is a demo, else
    `main`.
    """
    ensure_roles()
    ensure_admin(password=environ.get("BAILING_ADMIN_PASSWORD", ""))
    account_id = _account_of_tokens() or ("demo" if demo else "main")
    if not _exists(account_id):
        name = "Demo account" if account_id == "demo" else "Main account"
        with suppress(Conflict):  # another process of this installation starts right now
            create_account(account_id=account_id, name=name, actor=START)
    sync_environment_tokens(
        secrets={name: environ.get(name, "") for name in ENVIRONMENT}, account_id=account_id
    )
    # Without 0068 nobody signs decisions and the rest works; a twin may start right now.
    with suppress(Unavailable, Conflict):
        schema.require(schema.AGENT_JOBS)
        sync_environment_key(account_id=account_id, secret=environ.get(ENVIRONMENT_KEY, ""))
    return account_id


@reading
def _account_of_tokens() -> str:
    rows = Token.objects.filter(origin="environment").order_by("-created_at")
    return rows.values_list("account_id", flat=True).first() or ""


@reading
def _exists(account_id: str) -> bool:
    return Account.objects.filter(id=account_id).exists()
