"""`manage.py db_verify`: the schema and its ledger, then every database invariant (H2, K2)."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from kernel import invariants, schema
from kernel.invariants import Report
from kernel.management.base import (
    EXIT_FAILED,
    EXIT_SCHEMA,
    KernelCommand,
    Options,
    add_json,
    schema_trouble,
    shown,
    tables_trouble,
)
from kernel.runtime import allow_long_statements


class Command(KernelCommand):
    help = (
        "Check the migration ledger, then tables, columns (type, character set, nullability) and"
        " indexes against what the migrations made, then every database invariant, and keep the"
        " result of those for the console's Health page. Reads whole tables: run it"
        " beside traffic, but not every minute. Exit code 0: all hold; 1: offenders were found,"
        " or the database does not answer; 2: the schema or its ledger is not ready."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--no-store", action="store_true", help="do not keep the result for the Health page"
        )
        parser.add_argument("--all", action="store_true", help="also name the invariants that hold")
        add_json(parser)

    def run(self, options: Options) -> None:
        allow_long_statements()
        found = schema.state()
        if not found.ready and not found.gone:
            raise schema_trouble(found)
        if found.unrecorded:
            raise CommandError(
                f"The migration ledger lacks {list(found.unrecorded)}. Run manage.py db_init.",
                returncode=EXIT_SCHEMA,
            )
        if wrong := schema.differences():
            raise tables_trouble(wrong)
        reports = invariants.check_all()
        if not options["no_store"]:
            invariants.store_reports(reports=reports)
        broken = [report for report in reports if not report.holds]
        if options["json"]:
            self.document(
                {
                    "schema": {"ready": True, "steps": list(schema.checksums())},
                    "holds": not broken,
                    "invariants": [_plain(report) for report in reports],
                }
            )
        else:
            self.say(f"schema: {len(schema.checksums())} migrations, their tables unchanged")
            for report in reports if options["all"] else broken:
                self._describe(report)
        if broken:
            raise CommandError(
                f"{len(broken)} of {len(reports)} invariants do not hold.", returncode=EXIT_FAILED
            )
        if not options["json"]:
            self.say(f"All {len(reports)} invariants hold.")

    def _describe(self, report: Report) -> None:
        self.say(
            f"{report.invariant.key} ({report.invariant.requirement}):"
            f" {'holds' if report.holds else 'does not hold'}"
        )
        if report.holds:
            return
        self.say(f"  {report.invariant.says}")
        for offender in report.offenders:
            self.say(f"  - {shown(offender.id)}: {shown(offender.what)}")
        if report.more:
            self.say("  - and more")


def _plain(report: Report) -> dict[str, Any]:
    return {
        "key": report.invariant.key,
        "says": report.invariant.says,
        "requirement": report.invariant.requirement,
        "holds": report.holds,
        "offenders": [{"id": each.id, "what": each.what} for each in report.offenders],
        "more": report.more,
    }
