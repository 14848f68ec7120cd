"""`manage.py token`: API tokens; a secret is shown once and never stored (L4)."""

from typing import Any

from django.core.management.base import CommandParser

from kernel import access
from kernel.conf import conf
from kernel.management.base import KernelCommand, Options, actor, add_json, shown, when
from kernel.models import Token

DEFAULT_SCOPES = ["usage:read", "usage:write"]
SCOPES_HELP = "Scopes:\n" + "\n".join(
    f"  {name:<16} {about}" for name, about in access.SCOPES.items()
)


class Command(KernelCommand):
    help = "API tokens: what callers prove themselves with. Only a hash of each is stored."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        issue = self.add_act(
            acts,
            "issue",
            self._issue,
            help="Issue a token; prints its secret once.",
            more=SCOPES_HELP,
        )
        issue.add_argument("--account", required=True, metavar="ID", help="whose token it is")
        issue.add_argument("--name", required=True, help="for people: who or what will use it")
        issue.add_argument(
            "--scope",
            action="append",
            metavar="SCOPE",
            help=f"may be given several times (default: {' and '.join(DEFAULT_SCOPES)})",
        )
        add_json(issue)
        listing = self.add_act(acts, "list", self._list, help="List tokens, newest first.")
        listing.add_argument("--account", default="", metavar="ID", help="only this account's")
        add_json(listing)
        revoke = self.add_act(acts, "revoke", self._revoke, help="End a token, for good.")
        revoke.add_argument("id", help="the token's id (tok_...), never its secret")
        revoke.add_argument("--reason", default="", help="why, for the audit trail")

    def _issue(self, options: Options) -> None:
        row, secret = access.issue_token(
            account_id=options["account"],
            name=options["name"],
            scopes=options["scope"] or DEFAULT_SCOPES,
            actor=actor(),
        )
        if options["json"]:
            self.document({**_plain(row), "secret": secret})
            return
        self.say(
            f"Token {row.id} for account {row.account_id}, scopes {row.scopes}.",
            "",
            f"  {secret}",
            "",
            "This is the only time the secret is shown; it is not stored. Keep it safe now.",
            f"If it is lost or seen: manage.py token revoke {row.id}",
        )

    def _list(self, options: Options) -> None:
        rows = access.list_tokens(account_id=options["account"])
        if options["json"]:
            self.document([_plain(row) for row in rows])
            return
        self.table(
            ("ID", "ACCOUNT", "NAME", "SECRET", "SCOPES", "FROM", "CREATED", "STATE"),
            [
                (
                    row.id,
                    row.account_id,
                    row.name,
                    f"{row.prefix}...",
                    row.scopes,
                    row.origin,
                    row.created_at,
                    f"revoked {when(row.revoked_at)}" if row.revoked_at else "active",
                )
                for row in rows
            ],
            none="No tokens. Issue one: manage.py token issue --account ID --name NAME",
        )

    def _revoke(self, options: Options) -> None:
        ended_now = access.revoke_token(
            token_id=options["id"], actor=actor(), reason=options["reason"]
        )
        if not ended_now:
            self.say(f"Token {shown(options['id'])} was revoked before; nothing changed.")
            return
        self.say(
            f"Token {options['id']} is revoked. Running processes stop accepting it within"
            f" {conf.token_cache_seconds} s."
        )


def _plain(row: Token) -> dict[str, Any]:
    return {
        "token_id": row.id,
        "account_id": row.account_id,
        "name": row.name,
        "scopes": row.scopes.split(),
        "prefix": row.prefix,
        "origin": row.origin,
        "created_by": row.created_by,
        "created_at": row.created_at,
        "revoked_at": row.revoked_at,
    }
