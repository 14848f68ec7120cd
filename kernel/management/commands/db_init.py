"""manage.py db_init: bring the database schema up to this version."""

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from kernel import schema
from kernel.access import ensure_roles
from kernel.conf import conf
from kernel.errors import Conflict
from kernel.management.base import (
    EXIT_FAILED,
    EXIT_SCHEMA,
    KernelCommand,
    Options,
    plain,
    schema_trouble,
    tables_trouble,
)
from kernel.runtime import allow_long_statements

BUSY = {1205}  # MySQL: the table was in use for longer than `ddl_lock_wait_seconds`
CODES = """\
Exit codes:
  0  the schema is the one of this version (with --dry-run: it can be)
  1  --check: something is missing or changed; else: not done, e.g. a busy table
     or another db_init that holds the lock. What was done stays; the next run
     goes on
  2  the history is unknown or changed: nothing was touched. Or a table, a column
     or an index is not what its migration made: each is named

Killed at any moment, the next run finishes what is left. A second db_init says
that it waits, and then finds nothing to do."""


class Command(KernelCommand):
    help = (
        "Apply the migrations of this version: one at a time, under a lock, with a checksum ledger."
    )
    more = CODES

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--check", action="store_true", help="only say what is missing; exit 1 if anything is"
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="list each step that would run; change nothing"
        )

    def run(self, options: Options) -> None:
        settings.VAR_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
        if options["check"]:
            self._check()
            return
        try:
            if options["dry_run"]:
                self._show_plan()
                return
            applied = self._migrate()
        except Conflict as error:
            raise CommandError(plain(error), returncode=EXIT_SCHEMA) from error
        if wrong := schema.differences():
            raise tables_trouble(wrong)
        ensure_roles()
        done = f"applied {len(applied)} migrations" if applied else "nothing to do"
        self.stdout.write(self.style.SUCCESS(f"The schema is up to date: {done}."))

    def _migrate(self) -> tuple[str, ...]:
        allow_long_statements()
        try:
            return schema.migrate(say=self._say_now)
        except DatabaseError as error:
            if error.args[:1] and error.args[0] in BUSY:
                raise CommandError(
                    f"A table was in use for more than {conf.ddl_lock_wait_seconds} s, so that"
                    " step was given up. Stop the writers or wait for a quieter moment, then run"
                    " manage.py db_init again: it goes on from there.",
                    returncode=EXIT_FAILED,
                ) from error
            raise

    def _say_now(self, line: str) -> None:
        self.say(line)
        self.stdout.flush()

    def _check(self) -> None:
        found = schema.state()
        if wrong := schema.differences():
            raise CommandError(str(tables_trouble(wrong)), returncode=EXIT_FAILED)
        if not found.ready:
            raise CommandError(str(schema_trouble(found)), returncode=EXIT_FAILED)
        self.say("The schema is up to date.")

    def _show_plan(self) -> None:
        planned = schema.plan()
        for name, steps in planned:
            self.say(f"would apply {name}: {len(steps)} steps", *(f"  {step}" for step in steps))
        if not planned:
            self.say("The schema is up to date: nothing to do.")
