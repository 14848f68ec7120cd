"""`manage.py route`: kinds of jobs, who runs them, within which limits (D2, L4)."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from kernel import jobs
from kernel.jobs.routes import TARGETS, plain_fields
from kernel.management.base import KernelCommand, Options, actor, add_json, argument, shown
from kernel.management.files import text_or_file
from kernel.models import Route
from kernel.money import nano_to_usd, usd_to_nano

NO_LIMIT = "none"
EXAMPLE = """\
Example:
  manage.py route add refunds --service gpt-4o --tool find_order --tool refund_order \\
    --instructions @refunds.txt --cost-max 0.50"""
COUNTS = ("steps_max", "run_seconds_max", "approval_seconds")


class Command(KernelCommand):
    help = "Routes: kinds of jobs, who runs them, with which tools, within which limits."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        add = self.add_act(acts, "add", self._add, help="Add a route.", more=EXAMPLE)
        add.add_argument("id", help="what callers send as `route`")
        _add_options(add)
        listing = self.add_act(acts, "list", self._list, help="List routes.")
        add_json(listing)
        show = self.add_act(acts, "show", self._show, help="Show one route.")
        show.add_argument("id", help="the route")
        add_json(show)
        change = self.add_act(
            acts, "change", self._change, help="Change a route; its jobs see it at their next step."
        )
        change.add_argument("id", help="the route")
        _add_options(change)
        change.add_argument("--active", choices=("yes", "no"), help="'no' refuses new jobs")
        change.add_argument("--reason", default="", help="why, for the audit trail")

    def _add(self, options: Options) -> None:
        row = jobs.create_route(route_id=options["id"], actor=actor(), **_fields(options))
        self.say(f"Route {row.id} added.")
        self._describe(row)

    def _list(self, options: Options) -> None:
        rows = jobs.list_routes()
        if options["json"]:
            self.document([_plain(row) for row in rows])
            return
        self.table(
            ("ID", "RUN BY", "SERVICE", "TOOLS", "STEPS", "COST", "STATE"),
            [
                (
                    row.id,
                    row.target,
                    row.service_id,
                    ", ".join(jobs.tools_of(row)),
                    row.steps_max,
                    _cost(row),
                    _state(row),
                )
                for row in rows
            ],
            none="No routes. Add one: manage.py route add --help",
        )

    def _show(self, options: Options) -> None:
        row = jobs.get_route(route_id=options["id"])
        if options["json"]:
            self.document(_plain(row))
            return
        self.say(f"Route {row.id}, version {row.version} ({_state(row)})")
        self._describe(row)
        self.say(f"  instructions: {shown(row.instructions)}")

    def _change(self, options: Options) -> None:
        fields = _fields(options)
        if not fields:
            raise CommandError("Say what to change: --service, --tool, ... (see --help).")
        now = jobs.get_route(route_id=options["id"])
        row = jobs.change_route(
            route_id=now.id,
            actor=actor(),
            seen_version=now.version,
            reason=options["reason"],
            **fields,
        )
        self.say(f"Route {row.id} changed; it is at version {row.version}.")
        self._describe(row)

    def _describe(self, row: Route) -> None:
        tools = ", ".join(jobs.tools_of(row))
        by = f"our agent with the service {row.service_id}" if row.service_id else "an executor"
        tokens = f"{row.tokens_max} tokens" if row.tokens_max else "any number of tokens"
        self.say(
            f"  run by {by}; tools: {tools or 'none'}",
            f"  at most {row.steps_max} steps, {row.run_seconds_max} seconds of work, {tokens},"
            f" cost {_cost(row)}",
            f"  a question stays open for {row.approval_seconds} seconds",
        )


def _add_options(parser: CommandParser) -> None:
    parser.add_argument("--target", choices=TARGETS, help="who runs its jobs (agent)")
    parser.add_argument("--service", metavar="ID", help="the service of its model steps")
    parser.add_argument(
        "--instructions",
        type=argument(text_or_file),
        metavar="TEXT",
        help="the system message, or @file",
    )
    parser.add_argument(
        "--tool", action="append", metavar="ID", help="may be given several times; '' for none"
    )
    parser.add_argument("--steps-max", type=int, metavar="N", help="model steps of one job (20)")
    parser.add_argument(
        "--tokens-max", type=argument(_parse_limit), metavar="N", help=f"or {NO_LIMIT} (default)"
    )
    parser.add_argument(
        "--cost-max", type=argument(_parse_cost), metavar="USD", help=f"or {NO_LIMIT} (default)"
    )
    parser.add_argument("--run-seconds-max", type=int, metavar="N", help="of work, not waiting")
    parser.add_argument(
        "--approval-seconds", type=int, metavar="N", help="a question stays open so long (86400)"
    )


def _parse_limit(text: str) -> int | str:
    if text == NO_LIMIT:
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 15):
        raise ValueError(f"not a whole number: {text[:40]!r}")
    return int(text)


def _parse_cost(text: str) -> int | str:
    return text if text == NO_LIMIT else usd_to_nano(text)


def _fields(options: Options) -> dict[str, Any]:
    """The fields that were given on the command line."""
    given = {name: value for name, value in options.items() if value is not None}
    fields = {
        field: given[option]
        for option, field in (
            ("target", "target"),
            ("service", "service_id"),
            ("instructions", "instructions"),
            *((name, name) for name in COUNTS),
        )
        if option in given
    }
    if "tool" in given:
        fields["tools"] = [each for each in given["tool"] if each]
    for option, field in (("tokens_max", "tokens_max"), ("cost_max", "cost_nano_max")):
        if option in given:
            fields[field] = None if given[option] == NO_LIMIT else given[option]
    return fields | ({"active": given["active"] == "yes"} if "active" in given else {})


def _cost(row: Route) -> str:
    return "no limit" if row.cost_nano_max is None else f"${nano_to_usd(row.cost_nano_max)}"


def _state(row: Route) -> str:
    return "active" if row.active else "out of use"


def _plain(row: Route) -> dict[str, Any]:
    fields = plain_fields(row)
    cost = fields.pop("cost_nano_max")
    return {
        "route_id": row.id,
        **fields,
        "cost_usd_max": None if cost is None else nano_to_usd(cost),
        "version": row.version,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
