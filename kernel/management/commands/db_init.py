"""manage.py db_init: bring the database schema up to this version."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from kernel import schema
from kernel.access import ensure_roles
from kernel.errors import KernelError
from kernel.runtime import allow_long_statements


class Command(BaseCommand):
    help = (
        "Apply the migrations of this version: one at a time, under a lock, with a checksum ledger."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--check", action="store_true", help="only say what is missing; exit 1 if anything is"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        settings.VAR_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
        if options["check"]:
            self._check()
            return
        try:
            allow_long_statements()
            applied = schema.migrate(say=self.stdout.write)
        except KernelError as error:
            raise CommandError(f"{error.message} {error.way_out}") from error
        ensure_roles()
        done = f"applied {len(applied)} migrations" if applied else "nothing to do"
        self.stdout.write(self.style.SUCCESS(f"The schema is up to date: {done}."))

    def _check(self) -> None:
        found = schema.state()
        if found.ready:
            self.stdout.write("The schema is up to date.")
            return
        raise CommandError(
            f"missing: {list(found.missing)}; unknown: {list(found.unknown)};"
            f" changed: {list(found.changed)}. Run manage.py db_init.",
            returncode=1,
        )
