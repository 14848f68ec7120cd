"""`manage.py audit_verify`: walk every audit chain; say what was edited, removed or moved (M2)."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from django.core.management.base import CommandError, CommandParser

from kernel import audit
from kernel.audit import verification
from kernel.management.base import EXIT_FAILED, KernelCommand, Options, add_json, shown
from kernel.management.progress import ProgressBar

FINDINGS_MAX = 10_000
FINDINGS_SHOWN_MAX = 100
LOST_TIME = (
    "Every one is an end: this database is older than the kept lines, as after a restore to an"
    " earlier moment. If none was restored, the ends were cut off."
)
CHANGED = f"Rows were {verification.CHANGED}; compare with a backup or the exported log."


class Command(KernelCommand):
    help = (
        "Check the hash chain of every audit subject: an edited row, a gap, a changed order."
        " Rows cut off at the end of a chain show only against lines kept elsewhere: a heads file"
        " (manage.py audit_head), an export as JSON lines, or the JSONL copy."
        " Exit code 0: every chain fits; 1: findings, or a file that cannot be read."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--subject",
            default="",
            metavar="PREFIX",
            help="only subjects that start with this, such as account: or account:main",
        )
        parser.add_argument(
            "--against",
            action="append",
            default=[],
            type=Path,
            metavar="FILE",
            help="also look for each row that this file names; may be given more than once",
        )
        add_json(parser)

    def run(self, options: Options) -> None:
        faults = list(islice(self._faults(options), FINDINGS_MAX))
        if options["json"]:
            self.document(
                [
                    {
                        "subject": each.subject,
                        "sequence": each.sequence,
                        "what": each.what,
                        "is_older": each.is_older,
                    }
                    for each in faults
                ]
            )
        else:
            for each in faults[:FINDINGS_SHOWN_MAX]:
                self.say(f"{shown(each.subject)} row {each.sequence}: {each.what}")
            if not faults:
                self.say("Every audit chain fits.")
        if faults:
            more = " or more" if len(faults) == FINDINGS_MAX else ""
            raise CommandError(
                f"{len(faults)}{more} findings in"
                f" {len({each.subject for each in faults})} audit chains."
                f" {LOST_TIME if all(each.is_older for each in faults) else CHANGED}",
                returncode=EXIT_FAILED,
            )

    def _faults(self, options: Options) -> Iterator[audit.ChainFault]:
        with ProgressBar("Audit rows", verification.count()) as bar:
            yield from audit.verify(subject_prefix=options["subject"], tick=bar.add)
        for path in options["against"]:
            try:
                with path.open("rb") as lines:
                    yield from audit.compare(lines)
            except OSError as error:
                raise CommandError(
                    f"{path} cannot be read: {error.strerror}.", returncode=EXIT_FAILED
                ) from error
