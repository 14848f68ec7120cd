"""`manage.py audit_verify`: walk every audit chain; say what was edited, removed or moved (M2)."""

from django.core.management.base import CommandError, CommandParser

from kernel import audit
from kernel.management.base import EXIT_FAILED, KernelCommand, Options, add_json, shown

FINDINGS_SHOWN_MAX = 100


class Command(KernelCommand):
    help = (
        "Check the hash chain of every audit subject: an edited row, a gap, a changed order."
        " Rows cut off at the end of a chain show only against an exported head."
        " Exit code 0: every chain fits; 1: findings."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--subject",
            default="",
            metavar="PREFIX",
            help="only subjects that start with this, such as account: or account:main",
        )
        add_json(parser)

    def run(self, options: Options) -> None:
        faults = audit.verify(subject_prefix=options["subject"])
        if options["json"]:
            self.document(
                [
                    {"subject": each.subject, "sequence": each.sequence, "what": each.what}
                    for each in faults
                ]
            )
        else:
            for each in faults[:FINDINGS_SHOWN_MAX]:
                self.say(f"{shown(each.subject)} row {each.sequence}: {each.what}")
            if not faults:
                self.say("Every audit chain fits.")
        if faults:
            raise CommandError(
                f"{len(faults)} findings in"
                f" {len({each.subject for each in faults})} audit chains. Rows were changed outside"
                " the product; compare with a backup or the exported log.",
                returncode=EXIT_FAILED,
            )
