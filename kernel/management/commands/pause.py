"""`manage.py pause`: stop new work, for everything or for one route, and let it go on (D4, L4)."""

from django.core.management.base import CommandParser

from kernel import state
from kernel.management.base import KernelCommand, Options, actor, add_json

SCOPE_HELP = "`global`, or `route:<id>`"


class Command(KernelCommand):
    help = "Pauses: stop new work, for everything or for one route. Reads and decisions go on."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        start = self.add_act(
            acts,
            "set",
            self._set,
            help="Pause. Queued jobs wait; running ones stop at their next step or tool call.",
        )
        start.add_argument("scope", help=SCOPE_HELP)
        start.add_argument("--reason", required=True, help="why; everybody sees it")
        lift = self.add_act(acts, "lift", self._lift, help="Let new work go on.")
        lift.add_argument("scope", help=SCOPE_HELP)
        lift.add_argument("--reason", default="", help="why, for the audit trail")
        listing = self.add_act(acts, "list", self._list, help="List what is paused.")
        add_json(listing)

    def _set(self, options: Options) -> None:
        row = state.pause(scope=options["scope"], reason=options["reason"], actor=actor())
        self.say(f"Paused: {row.scope}. Go on: manage.py pause lift {row.scope}")

    def _lift(self, options: Options) -> None:
        state.unpause(scope=options["scope"], actor=actor(), reason=options["reason"])
        self.say(f"Not paused any more: {options['scope']}.")

    def _list(self, options: Options) -> None:
        rows = list(state.paused_scopes().values())
        if options["json"]:
            self.document(
                [
                    {
                        "scope": row.scope,
                        "reason": row.reason,
                        "paused_by": row.paused_by,
                        "paused_at": row.paused_at,
                    }
                    for row in rows
                ]
            )
            return
        self.table(
            ("SCOPE", "SINCE", "BY", "REASON"),
            [(row.scope, row.paused_at, row.paused_by, row.reason) for row in rows],
            none="Nothing is paused.",
        )
