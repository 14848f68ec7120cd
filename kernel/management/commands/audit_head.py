"""`manage.py audit_head FILE`: write down the last row of every audit chain, to be kept (M2)."""

import os
from pathlib import Path

from django.core.management.base import CommandError, CommandParser

from kernel import audit
from kernel.audit.verification import count
from kernel.management.base import EXIT_FAILED, KernelCommand, Options
from kernel.management.progress import ProgressBar


class Command(KernelCommand):
    help = (
        "Write the last row of every audit chain to a file, one JSON line each. Keep it where"
        " nobody who can write the database can write: manage.py audit_verify --against FILE then"
        " finds rows that were cut off since. An existing file is not replaced."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="the new file")

    def run(self, options: Options) -> None:
        path: Path = options["file"]
        chains = 0
        try:
            with path.open("xb") as file, ProgressBar("Audit rows", count()) as bar:
                for line in audit.heads(tick=bar.add):
                    file.write(line)
                    chains += 1
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CommandError(
                f"{path} cannot be written: {error.strerror}.", returncode=EXIT_FAILED
            ) from error
        self.say(f"The heads of {chains} audit chains are in {path}.")
