"""`manage.py dlq_replay`: send dead letters again, one or a planned set (F4, F9, L4)."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from kernel import operations
from kernel.conf import conf
from kernel.delivery.destinations import get_destination
from kernel.delivery.replay import replay
from kernel.errors import Conflict
from kernel.ids import new_id
from kernel.management.base import (
    EXIT_FAILED,
    KernelCommand,
    Options,
    actor,
    add_json,
    argument,
    parse_time,
    shown,
)
from kernel.models import Operation
from kernel.operations import Filter, Operations
from kernel.state import DatabaseStore
from kernel.states import OperationState

BAR_CHARS = 30
EXIT_INTERRUPTED = 130
WAIT_SECONDS = 0.25
TOLD = {
    "queued": "is queued. That is no receipt",
    "already_queued": "was queued before; nothing was queued now",
    "still_in_flight": "is still being sent; nothing was queued now",
}


class Command(KernelCommand):
    help = "Send dead letters again: one by its id, or all that a filter matches."
    more = (
        "Without an id a plan is printed first; it is applied after a yes, or with --yes.\n"
        "  manage.py dlq_replay dlq_018f... --reason 'receiver is back'\n"
        "  manage.py dlq_replay --destination shop --reason 'receiver is back'\n"
        "Ctrl-C leaves a planned set running in the product; operation pause stops it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", nargs="?", default="", help="one dead letter (dlq_...)")
        parser.add_argument("--fingerprint", default="", metavar="HEX", help="one error group")
        parser.add_argument("--destination", default="", metavar="ID", help="one destination")
        parser.add_argument("--account", default="", metavar="ID", help="one account")
        parser.add_argument("--channel", default="", metavar="NAME", help="one channel")
        at = argument(parse_time)
        parser.add_argument("--since", type=at, metavar="TIME", help="dead since then")
        parser.add_argument("--before", type=at, metavar="TIME", help="dead before then")
        parser.add_argument("--rate", type=int, default=None, metavar="N", help="so many a second")
        parser.add_argument("--reason", default="", help="why, for the audit (a set needs one)")
        parser.add_argument("--yes", action="store_true", help="apply the plan without asking")
        parser.add_argument("--plan-only", action="store_true", help="print the plan and stop")
        add_json(parser)

    def run(self, options: Options) -> None:
        wanted = _filter(options)
        if options["id"]:
            if wanted != Filter():
                raise CommandError("Give an id or a filter, not both.")
            self._one(options)
            return
        self._refuse_unless_answerable(options)
        try:
            row = operations.plan_replay(
                filter=wanted,
                actor=actor(),
                reason=options["reason"],
                rate_per_second=options["rate"],
            )
        except Conflict:
            if wanted.destination_id:
                get_destination(destination_id=wanted.destination_id)  # NotFound: a misspelt one
            raise
        if row.state == OperationState.PLANNING:
            row = self._freeze(row)
        if not options["json"]:
            self._tell_plan(row)
        if options["plan_only"] or not self._is_confirmed(row, options):
            self._end(
                row, options, f"Nothing was sent. Apply it: manage.py operation apply {row.id}"
            )
            return
        row = operations.apply(operation_id=row.id, actor=actor(), seen_digest=row.digest)
        row = self._work_off(row, quiet=options["json"])
        self._end(row, options, _result(row))
        if row.failed_count:
            raise CommandError(f"{row.failed_count} failed.", returncode=EXIT_FAILED)

    def _freeze(self, row: Operation) -> Operation:
        """Freeze a large set here, or wait for who does. Ctrl-C leaves it to the product."""
        worker = Operations(owner=new_id("cmd"), store=DatabaseStore(), only=row.id)
        with _interrupts() as interrupts:
            while row.state == OperationState.PLANNING and not interrupts:
                if not worker.page(limit=conf.operation_page_rows).has_more:
                    time.sleep(WAIT_SECONDS)
                row = operations.get_operation(operation_id=row.id)
            worker.release()
        if row.state != OperationState.PLANNED:
            why = row.error_text or f"It is {row.state}; nothing was sent."
            raise CommandError(f"The plan {row.id} is not ready. {why}", returncode=EXIT_FAILED)
        return row

    def _one(self, options: Options) -> None:
        told = replay(
            dead_letter_id=options["id"],
            actor=actor(),
            store=DatabaseStore(),
            reason=options["reason"],
        )
        if options["json"]:
            self.document(
                {
                    "dead_letter_id": options["id"],
                    "state": told.state,
                    "replay_identity": told.replay_identity,
                    "notification_id": told.notification_id,
                    "child_job_id": told.child_job_id or None,
                }
            )
            return
        self.say(
            f"{options['id']} {TOLD[told.state]}.",
            f"Its notification: {told.notification_id}",
        )

    def _tell_plan(self, row: Operation) -> None:
        self.say(
            f"Plan {row.id}: {row.item_count} dead letters are sent again,"
            f" {row.rate_per_second} per second at most.",
            f"  filter {shown(row.filter_text)}",
            f"  digest {row.digest}",
        )
        for destination, count in json.loads(row.split_text).items():
            self.say(f"  {count:>8}  to {shown(destination)}")

    @staticmethod
    def _refuse_unless_answerable(options: Options) -> None:
        """Where nobody can say yes, nothing is planned that would lie about afterwards."""
        is_told = options["yes"] or options["plan_only"]
        if not is_told and (options["json"] or not sys.stdin.isatty()):
            raise CommandError(
                "Nobody is asked here, and nothing was planned. Repeat with --yes, or with"
                " --plan-only for a plan that manage.py operation apply starts.",
                returncode=EXIT_FAILED,
            )

    def _is_confirmed(self, row: Operation, options: Options) -> bool:
        if options["yes"]:
            return True
        return input(f"Send {row.item_count} dead letters again? [y/N] ").strip().lower() == "y"

    def _work_off(self, row: Operation, *, quiet: bool) -> Operation:
        """Work the set off here, or watch who does. Ctrl-C ends after the page under way."""
        worker = Operations(owner=new_id("cmd"), store=DatabaseStore(), only=row.id)
        is_live = self.stdout.isatty() and not quiet
        with _interrupts() as interrupts:
            while row.state in (OperationState.RUNNING, OperationState.PAUSED) and not interrupts:
                if not worker.page(limit=conf.operation_page_rows).has_more:
                    time.sleep(WAIT_SECONDS)
                row = operations.get_operation(operation_id=row.id)
                if is_live:
                    self.stdout.write(f"\r{_bar(row)}", ending="")
                    self.stdout.flush()
            worker.release()
        if is_live:
            self.say("")
        if interrupts and row.state != OperationState.DONE:
            raise CommandError(
                f"Left running: {_bar(row)}. The product goes on with it;"
                f" manage.py operation pause {row.id} stops it.",
                returncode=EXIT_INTERRUPTED,
            )
        return row

    def _end(self, row: Operation, options: Options, sentence: str) -> None:
        if options["json"]:
            self.document(operation_document(row))
        else:
            self.say(sentence)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """The Ctrl-Cs so far: the first one waits for the page under way, a second one does not."""
    seen: list[int] = []

    def note(number: int, frame: object) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def operation_document(row: Operation) -> dict[str, Any]:
    """One operation for scripts."""
    return {
        "operation_id": row.id,
        "kind": row.kind,
        "state": row.state,
        "filter": json.loads(row.filter_text),
        "items": row.item_count,
        "digest": row.digest,
        "split": json.loads(row.split_text),
        "done": row.done_count,
        "skipped": row.skipped_count,
        "failed": row.failed_count,
        "rate_per_second": row.rate_per_second,
        "interruptions": row.interruptions,
        "reason": row.reason or None,
        "created_by": row.created_by,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
    }


def _filter(options: Options) -> Filter:
    times: dict[str, datetime | None] = {name: options[name] for name in ("since", "before")}
    return Filter(
        fingerprint=options["fingerprint"],
        destination_id=options["destination"],
        account_id=options["account"],
        channel=options["channel"],
        **times,
    )


def _bar(row: Operation) -> str:
    ended = row.done_count + row.skipped_count + row.failed_count
    share = ended / max(1, row.item_count)
    filled = int(share * BAR_CHARS)
    return f"[{'#' * filled}{'.' * (BAR_CHARS - filled)}] {ended} of {row.item_count} {row.state}"


def _result(row: Operation) -> str:
    lost = f" Its worker was lost {row.interruptions} times." if row.interruptions else ""
    return (
        f"{row.id} is {row.state}: {row.done_count} queued, {row.skipped_count} skipped,"
        f" {row.failed_count} failed, of {row.item_count}.{lost}"
    )
