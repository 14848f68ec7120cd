"""Whose secrets sign an account's decisions, and which signed messages were accepted (C).

A row names an environment variable; the secret itself is never stored. At most two keys of an
account are active, so that they can rotate: add the new one, change the senders, revoke the old.
"""

import hashlib
import logging
import os
from collections.abc import Mapping
from datetime import timedelta

from kernel import audit, clock, schema
from kernel.conf import conf
from kernel.errors import Conflict, NotFound, Unauthorized, Unavailable
from kernel.ids import check_key_name, key_value, new_id
from kernel.models import Account, SigningKey, WebhookReceipt
from kernel.runtime.maintenance import PageReport
from kernel.transactions import insert_new_in_tx, reading, transaction

log = logging.getLogger(__name__)

ACTIVE_MAX = 2
ENVIRONMENT_KEY = "BAILING_WEBHOOK_SECRET"


@transaction
def add_signing_key(*, account_id: str, secret_env: str, actor: audit.Actor) -> SigningKey:
    """Let the secret in the variable `secret_env` sign decisions of this account.

    The variable may still be empty; the key verifies nothing until it has a value. InvalidInput,
    NotFound, Conflict `two_keys_active` and `key_exists`.
    """
    check_key_name(secret_env, field="secret_env", also=ENVIRONMENT_KEY)
    return _add_in_tx(account_id=account_id, secret_env=secret_env, actor=actor)


@transaction
def revoke_signing_key(*, key_id: str, actor: audit.Actor, reason: str = "") -> bool:
    """End a key at once, in every process; False when it was revoked before. NotFound."""
    row = SigningKey.objects.filter(id=key_id).first()
    if row is None:
        raise NotFound(f"no signing key {key_id}")
    ended = SigningKey.objects.filter(id=key_id, revoked_at=None).update(revoked_at=clock.db_now())
    if ended:
        audit.append_in_tx(
            actor=actor,
            action="signing_key.revoke",
            kind="signing_key",
            object_id=key_id,
            before={"account_id": row.account_id, "secret_env": row.secret_env},
            reason=reason,
        )
    return bool(ended)


@reading
def list_signing_keys(*, account_id: str = "") -> list[SigningKey]:
    """Keys, newest first; all accounts unless one is named. At most 500."""
    rows = SigningKey.objects.order_by("-created_at", "-id")
    return list((rows.filter(account_id=account_id) if account_id else rows)[:500])


@reading
def active_secrets(
    *, account_id: str, environ: Mapping[str, str] = os.environ
) -> list[tuple[str, str]]:
    """(key id, secret) of the account's active keys whose variable has a value, oldest first."""
    rows = SigningKey.objects.filter(account_id=account_id, revoked_at=None).order_by("id")
    found = rows.values_list("id", "secret_env")[:ACTIVE_MAX]
    values = [
        (key_id, key_value(name, environ=environ, also=ENVIRONMENT_KEY)) for key_id, name in found
    ]
    return [(key_id, value) for key_id, value in values if value]


@transaction
def sync_environment_key(*, account_id: str, secret: str) -> None:
    """Make BAILING_WEBHOOK_SECRET a key of `account_id`, once; a revoked one stays revoked."""
    known = SigningKey.objects.filter(account_id=account_id, secret_env=ENVIRONMENT_KEY).exists()
    if known or not secret:
        return
    if len(_active_in_tx(account_id)) >= ACTIVE_MAX:
        log.warning("%s is not used: two signing keys are active", ENVIRONMENT_KEY)
        return
    _add_in_tx(
        account_id=account_id,
        secret_env=ENVIRONMENT_KEY,
        actor=audit.Actor("system", "start"),
    )


@transaction
def accept_message(*, account_id: str, webhook_id: str, about: str, body: bytes) -> bool:
    """Remember a verified message; False when this very message came before (the retry).

    `about` names the object it was sent to, so that it cannot be sent on to another one.
    Unauthorized when the id came with another body or for another object.
    """
    digest = hashlib.sha256(about.encode() + b"\n" + body).hexdigest()
    known = WebhookReceipt.objects.filter(account_id=account_id, webhook_id=webhook_id)
    earlier = known.values_list("body_sha256", flat=True).first()
    if earlier is None:
        row = WebhookReceipt(
            account_id=account_id,
            webhook_id=webhook_id,
            body_sha256=digest,
            received_at=clock.db_now(),
        )
        insert_new_in_tx(row)
        return True
    if earlier != digest:
        raise Unauthorized(
            "This webhook-id was used for another message.",
            next_action="Give each message its own webhook-id; repeat one with the same bytes.",
        )
    return False


def purge_receipts(*, cursor: int | None = None, limit: int) -> PageReport:
    """Forget messages older than `signature_receipt_days`: no signature is that old.

    What is deleted leaves the set, so each page starts at its front; `cursor` says there is more.
    """
    try:
        schema.require(schema.AGENT_JOBS)
    except Unavailable:
        return PageReport()  # no message was accepted either
    return _purge_receipts(limit=limit)


@transaction
def _purge_receipts(*, limit: int) -> PageReport:
    before = clock.db_now() - timedelta(days=conf.signature_receipt_days)
    rows = WebhookReceipt.objects.filter(received_at__lt=before).order_by("received_at", "id")
    # Deleted by primary key: a delete by secondary index deadlocks with inserts.
    doomed = list(rows.values_list("id", flat=True)[:limit])
    WebhookReceipt.objects.filter(id__in=doomed).delete()
    more = len(doomed) == limit
    return PageReport(scanned=len(doomed), settled=len(doomed), cursor=doomed[-1] if more else None)


def _add_in_tx(*, account_id: str, secret_env: str, actor: audit.Actor) -> SigningKey:
    # Locked, so that two additions at once count each other.
    if not Account.objects.select_for_update().filter(id=account_id).exists():
        raise NotFound(f"no account {account_id}", field="account_id")
    active = _active_in_tx(account_id)
    if secret_env in active:
        raise Conflict(f"{secret_env} is an active key of {account_id}.", code="key_exists")
    if len(active) >= ACTIVE_MAX:
        raise Conflict(
            f"{account_id} has {ACTIVE_MAX} active signing keys.",
            code="two_keys_active",
            next_action="Revoke one of them first.",
        )
    row = SigningKey(
        id=new_id("sgk"),
        account_id=account_id,
        secret_env=secret_env,
        created_by=f"{actor.kind}:{actor.id}"[:160],
        created_at=clock.db_now(),
    )
    insert_new_in_tx(row)
    audit.append_in_tx(
        actor=actor,
        action="signing_key.add",
        kind="signing_key",
        object_id=row.id,
        after={"account_id": account_id, "secret_env": secret_env},
    )
    return row


def _active_in_tx(account_id: str) -> list[str]:
    rows = SigningKey.objects.filter(account_id=account_id, revoked_at=None)
    return list(rows.values_list("secret_env", flat=True))
