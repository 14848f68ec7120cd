"""`manage.py operation`: look at long acts; apply, pause, resume and cancel them (F9, L4)."""

from collections import Counter

from django.core.management.base import CommandParser

from kernel import operations
from kernel.management.base import KernelCommand, Options, actor, add_json, shown
from kernel.management.commands.dlq_replay import operation_document
from kernel.models import Operation

LISTED = 50
ACTS = {
    "pause": (operations.pause, "Stop a running operation; what is done stays done."),
    "resume": (operations.resume, "Let a paused operation go on."),
    "cancel": (operations.cancel, "End an operation; the rest is not touched."),
}


class Command(KernelCommand):
    help = "Operations: long acts over a frozen set, such as a bulk replay."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        listing = self.add_act(acts, "list", self._list, help="List operations, newest first.")
        listing.add_argument("--limit", type=int, default=LISTED, metavar="N", help=f"({LISTED})")
        add_json(listing)
        show = self.add_act(acts, "show", self._show, help="Show one operation and its outcomes.")
        show.add_argument("id", help="the operation (op_...)")
        add_json(show)
        apply = self.add_act(
            acts, "apply", self._apply, help="Let a planned operation run in the product."
        )
        apply.add_argument("id", help="the operation (op_...)")
        apply.add_argument("--digest", default="", metavar="HEX", help="of the plan you looked at")
        apply.add_argument("--reason", default="", help="why, for the audit trail")
        for name, (_, about) in ACTS.items():
            act = self.add_act(acts, name, self._act_named(name), help=about)
            act.add_argument("id", help="the operation (op_...)")
            act.add_argument("--reason", default="", help="why, for the audit trail")

    def _act_named(self, name: str):  # type: ignore[no-untyped-def]  # a function of options
        verb = ACTS[name][0]

        def act(options: Options) -> None:
            row = verb(operation_id=options["id"], actor=actor(), reason=options["reason"])
            self.say(_line(row))

        return act

    def _list(self, options: Options) -> None:
        rows = operations.list_operations(limit=max(1, min(options["limit"], 1000)))
        if options["json"]:
            self.document([operation_document(row) for row in rows])
            return
        self.table(
            ("ID", "KIND", "STATE", "DONE", "OF", "BY", "CREATED"),
            [
                (
                    row.id,
                    row.kind,
                    row.state,
                    row.done_count,
                    row.item_count,
                    row.created_by,
                    row.created_at,
                )
                for row in rows
            ],
            none="No operations.",
        )

    def _show(self, options: Options) -> None:
        row = operations.get_operation(operation_id=options["id"])
        ends = operations.outcomes_of(operation_id=row.id)
        if options["json"]:
            document = operation_document(row)
            document["outcomes"] = [
                {"state": state, "outcome": text, "count": count}
                for (state, text), count in ends.items()
            ]
            self.document(document)
            return
        self.say(
            _line(row),
            f"  {row.kind}, filter {shown(row.filter_text)}",
            f"  planned by {shown(row.created_by)} at {shown(row.created_at)}: {shown(row.reason)}",
            f"  digest {row.digest}",
        )
        if row.interruptions:
            self.say(f"  its worker was lost {row.interruptions} times; it went on each time")
        for (state, text), count in Counter(ends).most_common():
            self.say(f"  {count:>8}  {state}  {shown(text)}")

    def _apply(self, options: Options) -> None:
        seen = operations.get_operation(operation_id=options["id"]).digest
        row = operations.apply(
            operation_id=options["id"],
            actor=actor(),
            seen_digest=options["digest"] or seen,
            reason=options["reason"],
        )
        self.say(_line(row), "The product works it off; manage.py maintain does so too.")


def _line(row: Operation) -> str:
    return (
        f"Operation {row.id} is {row.state}: {row.done_count} done, {row.skipped_count} skipped,"
        f" {row.failed_count} failed, of {row.item_count}."
    )
