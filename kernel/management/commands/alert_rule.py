"""`manage.py alert_rule`: which events a person is told about, and how often (F1, L4)."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from kernel.delivery import alerts
from kernel.management.base import KernelCommand, Options, actor, add_json
from kernel.models import AlertRule

EXAMPLE = """\
Example:
  manage.py alert_rule add dead-letters --event dead_letter --destination ops --cooldown-seconds 600

A rule looks at every account; each account has its own cooldown."""


class Command(KernelCommand):
    help = "Alert rules: which events a person is told about, once per cooldown and account."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        add = self.add_act(acts, "add", self._add, help="Add a rule.", more=EXAMPLE)
        add.add_argument("id", help="its name")
        _add_options(add, needed=True)
        listing = self.add_act(acts, "list", self._list, help="List rules.")
        add_json(listing)
        change = self.add_act(acts, "change", self._change, help="Change a rule.")
        change.add_argument("id", help="the rule")
        _add_options(change, needed=False)
        change.add_argument("--active", choices=("yes", "no"), help="'no' silences it")
        change.add_argument("--reason", default="", help="why, for the audit trail")

    def _add(self, options: Options) -> None:
        row = alerts.create_rule(rule_id=options["id"], actor=actor(), **_fields(options))
        self.say(f"Alert rule {row.id} added: {_words(row)}.")

    def _list(self, options: Options) -> None:
        rows = alerts.list_rules()
        if options["json"]:
            self.document([_plain(row) for row in rows])
            return
        self.table(
            ("ID", "EVENTS", "DESTINATION", "COOLDOWN", "STATE"),
            [
                (
                    row.id,
                    row.event_prefix,
                    row.destination_id,
                    f"{row.cooldown_seconds} s",
                    "active" if row.active else "inactive",
                )
                for row in rows
            ],
            none="No alert rules. Add one: manage.py alert_rule add --help",
        )

    def _change(self, options: Options) -> None:
        fields = _fields(options)
        if options["active"] is not None:
            fields["active"] = options["active"] == "yes"
        if not fields:
            raise CommandError("Say what to change: --event, --destination, ... (see --help).")
        row = alerts.change_rule(
            rule_id=options["id"], actor=actor(), reason=options["reason"], **fields
        )
        state = "" if row.active else "; it is inactive"
        self.say(f"Alert rule {row.id} changed: {_words(row)}{state}.")


def _add_options(parser: CommandParser, *, needed: bool) -> None:
    parser.add_argument(
        "--event",
        required=needed,
        metavar="NAME",
        help=f"{', '.join(alerts.WATCHED)}, or their first words such as dead_letter",
    )
    parser.add_argument("--destination", required=needed, metavar="ID", help="who is told")
    parser.add_argument(
        "--cooldown-seconds", type=int, metavar="N", help="one alert per N seconds (new: 300)"
    )


def _fields(options: Options) -> dict[str, Any]:
    names = (
        ("event", "event_prefix"),
        ("destination", "destination_id"),
        ("cooldown_seconds", "cooldown_seconds"),
    )
    return {name: options[option] for option, name in names if options[option] is not None}


def _words(row: AlertRule) -> str:
    return f"{row.event_prefix} -> {row.destination_id}, once per {row.cooldown_seconds} s"


def _plain(row: AlertRule) -> dict[str, Any]:
    return {
        "rule_id": row.id,
        "event_prefix": row.event_prefix,
        "destination_id": row.destination_id,
        "cooldown_seconds": row.cooldown_seconds,
        "active": row.active,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
