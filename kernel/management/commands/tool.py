"""`manage.py tool`: what agents may call, and when a person is asked first (D4, L4)."""

import json
import os
from typing import Any

from django.core.management.base import CommandError, CommandParser

from kernel import jobs
from kernel.jobs.registry import METHODS, plain_fields
from kernel.management.base import KernelCommand, Options, actor, add_json, argument, shown
from kernel.management.files import text_or_file
from kernel.models import Tool

EXAMPLE = """\
Example:
  manage.py tool add refund_order --url https://shop.example/orders/{order}/refunds \\
    --description "Refund an order." --effect "Refund {amount} cents of order {order}." \\
    --parameters @refund.schema.json --policy @refund.policy.json --secret-env SHOP_KEY

The policy: {"default": "approval", "risk": "medium", "rules": [
  {"when": {"argument": "amount", "is": "number", "op": "<=", "value": 2000}, "then": "auto"}]}
Without one, a person is asked about every call."""
TEXTS = ("description", "method", "url", "effect")
HEADERS = ("secret_env", "secret_header", "idempotency_header")
JSONS = ("parameters", "policy")
LIMITS = ("body_bytes_max", "calls_per_minute_max")
AS_GIVEN = (*TEXTS, *HEADERS, *JSONS, "deadline_seconds")
FLAGS = ("side_effect", "allow_private", "active")


class Command(KernelCommand):
    help = "Tools: what agents may call, and when a person is asked first."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        add = self.add_act(acts, "add", self._add, help="Add a tool.", more=EXAMPLE)
        add.add_argument("id", help="the function's name for the model: A-Z a-z 0-9 _ -")
        _add_options(add, url_required=True)
        listing = self.add_act(acts, "list", self._list, help="List tools.")
        add_json(listing)
        show = self.add_act(acts, "show", self._show, help="Show one tool.")
        show.add_argument("id", help="the tool")
        add_json(show)
        change = self.add_act(
            acts,
            "change",
            self._change,
            help="Change a tool. Approvals of its earlier version are asked again.",
        )
        change.add_argument("id", help="the tool")
        _add_options(change, url_required=False)
        change.add_argument("--active", choices=("yes", "no"), help="'no' takes it out of use")
        change.add_argument("--reason", default="", help="why, for the audit trail")

    def _add(self, options: Options) -> None:
        row = jobs.create_tool(tool_id=options["id"], actor=actor(), **_fields(options))
        self.say(f"Tool {row.id} added.")
        self._describe(row)

    def _list(self, options: Options) -> None:
        rows = jobs.list_tools()
        if options["json"]:
            self.document([_plain(row) for row in rows])
            return
        self.table(
            ("ID", "METHOD", "URL", "EFFECT", "VERSION", "STATE"),
            [
                (
                    row.id,
                    row.method,
                    row.url,
                    row.effect_text or ("side effect" if row.side_effect else "reads only"),
                    row.version,
                    _state(row),
                )
                for row in rows
            ],
            none="No tools. Add one: manage.py tool add --help",
        )

    def _show(self, options: Options) -> None:
        row = jobs.get_tool(tool_id=options["id"])
        if options["json"]:
            self.document(_plain(row))
            return
        self.say(f"Tool {row.id}, version {row.version} ({_state(row)})")
        self._describe(row)
        self.say(
            f"  arguments: {shown(row.parameters_text)}", f"  policy: {shown(row.policy_text)}"
        )

    def _change(self, options: Options) -> None:
        fields = _fields(options)
        if not fields:
            raise CommandError("Say what to change: --url, --policy, ... (see --help).")
        now = jobs.get_tool(tool_id=options["id"])
        row = jobs.change_tool(
            tool_id=now.id,
            actor=actor(),
            seen_version=now.version,
            reason=options["reason"],
            **fields,
        )
        self.say(f"Tool {row.id} changed; it is at version {row.version}.")
        self._describe(row)

    def _describe(self, row: Tool) -> None:
        policy = json.loads(row.policy_text)
        rules = len(policy.get("rules", []))
        self.say(
            f"  calls {row.method} {shown(row.url)}, at most {row.deadline_seconds} seconds",
            f"  {'has side effects' if row.side_effect else 'only reads'}; policy:"
            f" {policy['default']}, {policy['risk']} risk, {rules} rule{'' if rules == 1 else 's'}",
        )
        if row.secret_env and not os.environ.get(row.secret_env):
            self.say(
                f"  key: {row.secret_env} is not set here; it must be set where the product runs"
            )


def _add_options(parser: CommandParser, *, url_required: bool) -> None:
    parser.add_argument(
        "--url", required=url_required, help="where it goes; {name} in the path takes an argument"
    )
    parser.add_argument("--method", choices=METHODS, help="default: POST")
    parser.add_argument("--description", metavar="TEXT", help="for the model")
    parser.add_argument(
        "--effect", metavar="TEXT", help="for the approver: what a call does; {name} is filled in"
    )
    for name, what in (
        ("--parameters", "JSON Schema of the arguments, or @file"),
        ("--policy", "when a person is asked: JSON, or @file"),
    ):
        parser.add_argument(name, type=argument(text_or_file), metavar="JSON", help=what)
    parser.add_argument(
        "--side-effect",
        choices=("yes", "no"),
        help="'no': it only reads, and may be sent again (default: yes)",
    )
    parser.add_argument(
        "--secret-env", metavar="NAME", help="the environment variable that holds the tool's key"
    )
    parser.add_argument(
        "--secret-header", metavar="NAME", help="the header it is sent in (Authorization)"
    )
    parser.add_argument("--idempotency-header", metavar="NAME", help="the header of the call's key")
    parser.add_argument("--deadline-seconds", type=int, metavar="N", help="one call, in total (30)")
    parser.add_argument(
        "--body-bytes-max", type=int, metavar="N", help="of its answer; 0: the product's limit"
    )
    parser.add_argument("--calls-per-minute-max", type=int, metavar="N", help="0: no limit")
    parser.add_argument(
        "--allow-private", choices=("yes", "no"), help="allow a loopback or private address"
    )


def _fields(options: Options) -> dict[str, Any]:
    """The fields that were given on the command line."""
    given = {name: value for name, value in options.items() if value is not None}
    fields = {name: given[name] for name in AS_GIVEN if name in given}
    fields |= {name: given[name] == "yes" for name in FLAGS if name in given}
    fields |= {name: given[name] or None for name in LIMITS if name in given}
    return fields


def _state(row: Tool) -> str:
    return "active" if row.active else "retired"


def _plain(row: Tool) -> dict[str, Any]:
    fields = plain_fields(row)
    return {
        "tool_id": row.id,
        **fields,
        **{name: json.loads(fields[name]) for name in JSONS},
        "version": row.version,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
