"""`manage.py doctor`: is this installation set up as it must be? What to do where it is not."""

import argparse
from typing import Any

from django.core.management.base import CommandParser

from kernel import doctor
from kernel.doctor import LEVELS, OK, Finding
from kernel.management.base import KernelCommand, Options, add_json, shown

CODES = """\
Exit codes:
  0  all is well
  1  warnings
  2  at least one failure, such as a database that does not answer

It reads only, calls no provider, and prints no secret. An operator can run the
same checks on the console's Health page, which also looks at the headers that
a proxy in front sends."""


class Command(KernelCommand):
    help = (
        "Check the database's settings, clocks, disk, secrets, hosts and proxies, where calls may"
        " go, migrations and maintenance: what was seen, and what to do."
    )
    more = CODES

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--all", action=argparse.BooleanOptionalAction, default=True, help="also what is well"
        )
        add_json(parser)

    def run(self, options: Options) -> None:
        findings = doctor.examine()
        worst = doctor.worst(findings)
        if options["json"]:
            self.document({"worst": worst, "findings": [_plain(each) for each in findings]})
        else:
            self._tell([each for each in findings if options["all"] or each.level != OK])
            counts = ", ".join(f"{_count(findings, level)} {level}" for level in LEVELS)
            self.say(f"{len(findings)} checks: {counts}.")
        if worst != OK:
            self.stdout.flush()
            raise SystemExit(LEVELS.index(worst))

    def _tell(self, findings: list[Finding]) -> None:
        for each in sorted(findings, key=lambda one: LEVELS.index(one.level)):
            self.say(f"{each.level:8} {each.check}: {shown(each.seen)}")
            if each.todo:
                self.say(f"         -> {shown(each.todo)}")


def _count(findings: list[Finding], level: str) -> int:
    return sum(each.level == level for each in findings)


def _plain(each: Finding) -> dict[str, Any]:
    return {"check": each.check, "level": each.level, "seen": each.seen, "todo": each.todo}
