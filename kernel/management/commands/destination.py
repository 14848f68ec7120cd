"""`manage.py destination`: where an account's notifications go (F1, F7, L4)."""

import json
import os
from typing import Any

from django.core.management.base import CommandError, CommandParser

from kernel import outbox
from kernel.delivery import destinations
from kernel.delivery.fields import CHANNELS
from kernel.management.base import KernelCommand, Options, actor, add_json, shown, when
from kernel.models import Destination

EXAMPLE = """\
Example:
  manage.py destination add ops --account main --channel webhook \\
    --address https://hooks.example/bailing --secret-env OPS_HOOK_SECRET \\
    --event job --event approval

The secret stays in the environment of the running product; only the variable's name is stored.
Two names with a comma sign with both, so that a secret can be changed without a gap."""


class Command(KernelCommand):
    help = "Destinations: where notifications of an account go."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        add = self.add_act(acts, "add", self._add, help="Add a destination.", more=EXAMPLE)
        add.add_argument("id", help="its name")
        add.add_argument("--account", required=True, metavar="ID", help="whose notifications")
        add.add_argument("--channel", required=True, choices=CHANNELS, help="how they are sent")
        add.add_argument("--allow-private", action="store_true", help=PRIVATE)
        _add_options(add, needed=True)
        listing = self.add_act(acts, "list", self._list, help="List destinations.")
        listing.add_argument("--account", default="", metavar="ID", help="only those of one")
        add_json(listing)
        show = self.add_act(acts, "show", self._show, help="Show one destination.")
        show.add_argument("id", help="the destination")
        add_json(show)
        change = self.add_act(
            acts,
            "change",
            self._change,
            help="Change a destination. What waits for it keeps its recipient.",
        )
        change.add_argument("id", help="the destination")
        _add_options(change, needed=False)
        change.add_argument("--allow-private", choices=("yes", "no"), help=PRIVATE)
        change.add_argument("--active", choices=("yes", "no"), help="'no': take nothing new")
        change.add_argument("--reason", default="", help="why, for the audit trail")
        test = self.add_act(acts, "test", self._test, help="Send a test message.")
        test.add_argument("id", help="the destination")
        close = self.add_act(acts, "close", self._close, help="Leave it alone for a time.")
        close.add_argument("id", help="the destination")
        close.add_argument("--seconds", type=int, default=3600, metavar="N", help="(3600)")
        close.add_argument("--reason", required=True, help="why, for the audit trail")
        reopen = self.add_act(acts, "open", self._open, help="Send to a closed one again, now.")
        reopen.add_argument("id", help="the destination")
        reopen.add_argument("--reason", default="", help="why, for the audit trail")

    def _add(self, options: Options) -> None:
        row = destinations.create_destination(
            destination_id=options["id"],
            account_id=options["account"],
            channel=options["channel"],
            address=options["address"],
            events=options["event"],
            sender=options["sender"] or "",
            secret_env=options["secret_env"] or "",
            allow_private=options["allow_private"],
            actor=actor(),
        )
        self.say(f"Destination {row.id} added.")
        self._describe(row)

    def _list(self, options: Options) -> None:
        rows = destinations.list_destinations(account_id=options["account"])
        if options["json"]:
            self.document([_plain(row) for row in rows])
            return
        self.table(
            ("ID", "ACCOUNT", "CHANNEL", "ADDRESS", "EVENTS", "FAILURES", "STATE"),
            [
                (
                    row.id,
                    row.account_id,
                    row.channel,
                    row.address,
                    " ".join(json.loads(row.events_text)),
                    row.failures,
                    _state(row),
                )
                for row in rows
            ],
            none="No destinations. Add one: manage.py destination add --help",
        )

    def _show(self, options: Options) -> None:
        row = destinations.get_destination(destination_id=options["id"])
        if options["json"]:
            self.document(_plain(row))
            return
        self.say(f"Destination {row.id}, version {row.version} ({_state(row)})")
        self._describe(row)

    def _change(self, options: Options) -> None:
        fields: dict[str, Any] = {
            name: options[name]
            for name in ("address", "sender", "secret_env")
            if options[name] is not None
        }
        if options["event"]:
            fields["events"] = options["event"]
        for name in ("allow_private", "active"):
            if options[name] is not None:
                fields[name] = options[name] == "yes"
        if not fields:
            raise CommandError("Say what to change: --address, --event, ... (see --help).")
        now = destinations.get_destination(destination_id=options["id"])
        row = destinations.change_destination(
            destination_id=now.id,
            seen_version=now.version,
            actor=actor(),
            reason=options["reason"],
            **fields,
        )
        self.say(f"Destination {row.id} changed; it is at version {row.version}.")
        self._describe(row)

    def _test(self, options: Options) -> None:
        found = destinations.send_test(destination_id=options["id"], actor=actor())
        self.say(f"Test message {found} queued; the running product sends it.")

    def _close(self, options: Options) -> None:
        row = destinations.close_destination(
            destination_id=options["id"],
            actor=actor(),
            reason=options["reason"],
            seconds=options["seconds"],
        )
        self.say(f"Destination {row.id} is {_state(row)}; what is for it waits.")

    def _open(self, options: Options) -> None:
        row = destinations.open_destination(
            destination_id=options["id"], actor=actor(), reason=options["reason"]
        )
        self.say(f"Destination {row.id} is {_state(row)}; what waited is sent now.")

    def _describe(self, row: Destination) -> None:
        events = " ".join(json.loads(row.events_text))
        self.say(
            f"  sends {shown(events)} of {row.account_id} to {shown(row.address)} by {row.channel}"
        )
        for name in row.secret_env.split(","):
            if name and not os.environ.get(name):
                self.say(f"  secret: {name} is not set here; it must be set where the product runs")


PRIVATE = "allow a loopback or private address (never a metadata address)"


def _add_options(parser: CommandParser, *, needed: bool) -> None:
    parser.add_argument(
        "--address", required=needed, help="a URL, a mail address, or what the channel takes"
    )
    parser.add_argument(
        "--event",
        action="append",
        required=needed,
        metavar="NAME",
        help=f"repeat it; {', '.join(outbox.EVENTS)}, or their first words such as job",
    )
    parser.add_argument("--sender", help="the From of mails (default: the product's)")
    parser.add_argument(
        "--secret-env", metavar="NAME", help="the variable that holds a webhook's signing secret"
    )


def _state(row: Destination) -> str:
    if not row.active:
        return "inactive"
    if row.closed_until_at is not None:
        return f"closed until {when(row.closed_until_at)}"
    return "open"


def _plain(row: Destination) -> dict[str, Any]:
    return {
        "destination_id": row.id,
        "account_id": row.account_id,
        "channel": row.channel,
        "address": row.address,
        "sender": row.sender or None,
        "secret_env": row.secret_env or None,
        "events": json.loads(row.events_text),
        "allow_private": row.allow_private,
        "active": row.active,
        "failures": row.failures,
        "closed_until_at": row.closed_until_at,
        "version": row.version,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
