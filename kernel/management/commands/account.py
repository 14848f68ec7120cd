"""`manage.py account`: who pays for requests, up to which cap, at which multiplier (A15, L4)."""

import sys
from dataclasses import replace
from typing import Any

from django.core.management.base import CommandError, CommandParser

from kernel import usage
from kernel.ids import check_id
from kernel.management.base import KernelCommand, Options, actor, add_json, argument, shown
from kernel.management.commands.explain_charge import find
from kernel.models import Account
from kernel.money import (
    MULTIPLIER_ONE,
    format_multiplier,
    nano_to_usd,
    parse_multiplier,
    usd_to_nano,
)

NO_CAP = "none"
KEY_CHARS_MAX = 56
CORRECT_MORE = """\
Examples:
  manage.py account correct order-1001 --amount=-0.05 --reason "billed twice by the provider"
  manage.py account correct order-1001 --total 0.10 --reason "invoice 4711" --key invoice-4711 --yes
"""


class Command(KernelCommand):
    help = "Accounts: who pays for model requests, up to which cap, at which multiplier."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        create = self.add_act(acts, "create", self._create, help="Create an account.")
        create.add_argument("id", help="1-128 of A-Z a-z 0-9 . _ : -, case-sensitive")
        create.add_argument("--name", default="", help="for people (default: the id)")
        _add_money(create, cap="refuse requests that could pass it (default: none)")
        create.add_argument(
            "--allow-unpriced",
            action="store_true",
            help="admit requests that have no price yet; they wait as pending (needs no cap)",
        )
        listing = self.add_act(acts, "list", self._list, help="List the accounts by id.")
        listing.add_argument("--after", default="", metavar="ID", help="only those behind this id")
        add_json(listing)
        show = self.add_act(acts, "show", self._show, help="Show one account and where it stands.")
        show.add_argument("id", help="the account")
        add_json(show)
        change = self.add_act(
            acts,
            "change",
            self._change,
            help="Change an account. Requests that are admitted already keep their multiplier.",
        )
        change.add_argument("id", help="the account")
        change.add_argument("--name", help="for people")
        _add_money(change, cap=f"refuse requests that could pass it; '{NO_CAP}' removes it")
        for option, what in (
            ("--allow-unpriced", "admit requests that have no price yet"),
            ("--active", "'no' closes the account to new requests"),
        ):
            change.add_argument(option, choices=("yes", "no"), help=what)
        change.add_argument("--reason", default="", help="why, for the audit trail")
        _add_correct(
            self.add_act(
                acts,
                "correct",
                self._correct,
                help="Correct a settled charge by a new ledger row; the charge itself stays.",
                more=CORRECT_MORE,
            )
        )

    def _create(self, options: Options) -> None:
        row = usage.create_account(
            account_id=options["id"],
            name=options["name"] or options["id"],
            cap_nano=None if options["cap"] == NO_CAP else options["cap"],
            multiplier_millionths=(
                MULTIPLIER_ONE if options["multiplier"] is None else options["multiplier"]
            ),
            allow_unpriced=options["allow_unpriced"],
            actor=actor(),
        )
        self.say(
            f"Account {row.id} created: cap {_cap(row)},"
            f" multiplier {format_multiplier(row.multiplier_millionths)}.",
            f"Give it a token: manage.py token issue --account {row.id} --name NAME",
        )

    def _list(self, options: Options) -> None:
        rows, more_follow = usage.list_accounts(after=options["after"])
        if more_follow:  # beside the document, not in it
            self.stderr.write(
                f"Only {len(rows):,} accounts are listed. Go on with --after {rows[-1].id}"
            )
        if options["json"]:
            self.document([_plain(row) for row in rows])
            return
        self.table(
            ("ID", "NAME", "CAP", "CONSUMED", "HELD", "MULTIPLIER", "STATE"),
            [
                (
                    row.id,
                    row.name,
                    _cap(row),
                    f"${nano_to_usd(row.consumed_nano)}",
                    f"${nano_to_usd(row.held_nano)}",
                    format_multiplier(row.multiplier_millionths),
                    _state(row),
                )
                for row in rows
            ],
            none="No accounts. Create one: manage.py account create ID",
        )

    def _show(self, options: Options) -> None:
        found = usage.account_summary(account_id=options["id"])
        row = found.account
        if options["json"]:
            self.document(
                {
                    **_plain(row),
                    "pending_usd_max": nano_to_usd(found.pending_nano_max),
                    "pending_without_bound": found.unknown_pending,
                }
            )
            return
        pending = f"${nano_to_usd(found.pending_nano_max)}"
        if found.unknown_pending:
            pending += " and requests without a bound"
        self.say(
            f"Account {row.id}: {shown(row.name)} ({_state(row)})",
            f"  settled ${nano_to_usd(found.consumed_nano)} + pending up to {pending}",
            f"  held ${nano_to_usd(found.held_nano)}, cap {_cap(row)}",
            f"  multiplier {format_multiplier(row.multiplier_millionths)},"
            f" requests without a price {'admitted' if row.allow_unpriced else 'refused'}",
            f"  created {shown(row.created_at)}, changed {shown(row.updated_at)}",
        )
        if row.overrun_at:
            self.say(
                f"  over its cap since {shown(row.overrun_at)}: new requests are refused."
                f" Raise the cap: manage.py account change {row.id} --cap USD"
            )

    def _change(self, options: Options) -> None:
        fields: dict[str, Any] = {}
        if options["name"] is not None:
            fields["name"] = options["name"]
        if options["cap"] is not None:
            fields["cap_nano"] = None if options["cap"] == NO_CAP else options["cap"]
        if options["multiplier"] is not None:
            fields["multiplier_millionths"] = options["multiplier"]
        for name in ("allow_unpriced", "active"):
            if options[name] is not None:
                fields[name] = options[name] == "yes"
        if not fields:
            raise CommandError("Say what to change: --name, --cap, --multiplier, ... (see --help).")
        now = usage.account_summary(account_id=options["id"]).account
        row = usage.change_account(
            account_id=now.id,
            version=now.version,
            actor=actor(),
            reason=options["reason"],
            **fields,
        )
        self.say(
            f"Account {row.id} changed: cap {_cap(row)},"
            f" multiplier {format_multiplier(row.multiplier_millionths)}, {_state(row)}."
        )

    def _correct(self, options: Options) -> None:
        request = find(options["id"], account_id=options["account"])
        found = usage.explain_charge(request=request)
        total, amount = found.total_nano, options["amount"]
        if total is not None:
            amount = options["total"] - total if amount is None else amount
            self.say(
                f"Operation {request.operation_id} of account {request.account_id}"
                f" (request {request.id}):",
                f"  ${nano_to_usd(total)} now, corrected by ${nano_to_usd(amount)}"
                f" to ${nano_to_usd(total + amount)}",
            )
            if not options["yes"] and not self._agreed():
                raise CommandError("Nothing was changed.")
        entry = usage.post_correction(
            request_id=request.id,
            amount_nano=options["amount"],
            total_nano=options["total"],
            seen_total_nano=total,
            reason=options["reason"],
            actor=replace(actor(), act_key=_act_key(options["key"])),
        )
        self.say(f"Ledger row {entry.id}: correction of ${nano_to_usd(entry.amount_nano)}.")

    def _agreed(self) -> bool:
        self.stdout.write("Post it? Type yes: ", ending="")
        self.stdout.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")


def _act_key(key: str | None) -> str:
    return f"correct:{check_id(key, field='key', chars_max=KEY_CHARS_MAX)}" if key else ""


def _add_correct(parser: CommandParser) -> None:
    parser.add_argument("id", help="an operation id, or a request id (req_...)")
    parser.add_argument("--account", metavar="ID", help="the account, where several used the id")
    by = parser.add_mutually_exclusive_group(required=True)
    by.add_argument(
        "--amount",
        type=argument(_parse_usd),
        metavar="USD",
        help="what is added; a minus takes away: --amount=-0.05",
    )
    by.add_argument(
        "--total", type=argument(_parse_usd), metavar="USD", help="what it should come to"
    )
    parser.add_argument("--reason", required=True, help="why; kept in ledger and audit trail")
    parser.add_argument(
        "--key", metavar="ID", help="a key of this one correction: with it a repeat does nothing"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask; for scripts")


def _add_money(parser: CommandParser, *, cap: str) -> None:
    parser.add_argument("--cap", type=argument(_parse_cap), metavar="USD", help=cap)
    parser.add_argument(
        "--multiplier",
        type=argument(parse_multiplier),
        metavar="FACTOR",
        help="charge = reference price x this factor, 0 to 1000 (new accounts: 1)",
    )


def _parse_usd(text: str) -> int:
    return usd_to_nano(text.strip().replace("$", "", 1))


def _parse_cap(text: str) -> int | str:
    return NO_CAP if text.strip() == NO_CAP else usd_to_nano(text.strip().removeprefix("$"))


def _cap(row: Account) -> str:
    return NO_CAP if row.cap_nano is None else f"${nano_to_usd(row.cap_nano)}"


def _state(row: Account) -> str:
    state = "active" if row.active else "closed"
    return f"{state}, over its cap" if row.overrun_at else state


def _plain(row: Account) -> dict[str, Any]:
    return {
        "account_id": row.id,
        "name": row.name,
        "cap_usd": None if row.cap_nano is None else nano_to_usd(row.cap_nano),
        "multiplier": format_multiplier(row.multiplier_millionths),
        "consumed_usd": nano_to_usd(row.consumed_nano),
        "held_usd": nano_to_usd(row.held_nano),
        "allow_unpriced": row.allow_unpriced,
        "active": row.active,
        "overrun_at": row.overrun_at,
        "version": row.version,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
