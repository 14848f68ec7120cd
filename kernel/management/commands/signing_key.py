"""`manage.py signing_key`: whose secrets sign an account's decisions (L4)."""

import os
from typing import Any

from django.core.management.base import CommandParser

from kernel import access, schema
from kernel.access.signing_keys import ENVIRONMENT_KEY
from kernel.delivery.signing import KEY_BYTES_MIN, key_of
from kernel.ids import key_value
from kernel.management.base import KernelCommand, Options, actor, add_json, shown, when
from kernel.models import SigningKey

ADDED = """\
A secret is `whsec_<base64>`, or any text of 16 bytes or more, which is the key itself.
To rotate: add the new key, give the new secret to the senders, revoke the old key."""


class Command(KernelCommand):
    help = (
        "Signing keys: a business system signs its decisions with one. A key names an environment"
        " variable; the secret itself is never stored."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        add = self.add_act(acts, "add", self._add, help="Add a key (at most two).", more=ADDED)
        add.add_argument("--account", required=True, metavar="ID", help="whose decisions it signs")
        add.add_argument(
            "--env", required=True, metavar="NAME", help="the variable that holds the secret"
        )
        listing = self.add_act(acts, "list", self._list, help="List keys, newest first.")
        listing.add_argument("--account", default="", metavar="ID", help="only this account's")
        add_json(listing)
        revoke = self.add_act(acts, "revoke", self._revoke, help="End a key, for good, at once.")
        revoke.add_argument("id", help="the key's id (sgk_...)")
        revoke.add_argument("--reason", default="", help="why, for the audit trail")

    def run(self, options: Options) -> None:
        schema.require(schema.AGENT_JOBS)
        super().run(options)

    def _add(self, options: Options) -> None:
        row = access.add_signing_key(
            account_id=options["account"], secret_env=options["env"], actor=actor()
        )
        self.say(f"Signing key {row.id}: {row.secret_env} signs decisions of {row.account_id}.")
        if state_of(row) != "active":
            self.say(
                f"In this shell {row.secret_env} has no usable value ({KEY_BYTES_MIN} bytes or"
                " more); the running product needs it in its own environment."
            )

    def _list(self, options: Options) -> None:
        rows = access.list_signing_keys(account_id=options["account"])
        if options["json"]:
            self.document([_plain(row) for row in rows])
            return
        self.table(
            ("ID", "ACCOUNT", "VARIABLE", "ADDED BY", "ADDED", "STATE"),
            [
                (
                    row.id,
                    row.account_id,
                    row.secret_env,
                    row.created_by,
                    row.created_at,
                    state_of(row),
                )
                for row in rows
            ],
            none="No signing keys. Add one: manage.py signing_key add --account ID --env NAME",
        )

    def _revoke(self, options: Options) -> None:
        ended_now = access.revoke_signing_key(
            key_id=options["id"], actor=actor(), reason=options["reason"]
        )
        if not ended_now:
            self.say(f"Key {shown(options['id'])} was revoked before; nothing changed.")
            return
        self.say(f"Key {options['id']} is revoked; what it signs is refused from now on.")


def state_of(row: SigningKey) -> str:
    """What the key is good for, as far as this process sees its variable."""
    if row.revoked_at:
        return f"revoked {when(row.revoked_at)}"
    usable = key_of(key_value(row.secret_env, environ=os.environ, also=ENVIRONMENT_KEY)) is not None
    return "active" if usable else "active, no secret here"


def _plain(row: SigningKey) -> dict[str, Any]:
    return {
        "key_id": row.id,
        "account_id": row.account_id,
        "secret_env": row.secret_env,
        "created_by": row.created_by,
        "created_at": row.created_at,
        "revoked_at": row.revoked_at,
    }
