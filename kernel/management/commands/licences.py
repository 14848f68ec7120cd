"""`manage.py licences`: writes docs/licences.md from the installed packages' own words."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

HEAD = """# Licences of the packages Bailing uses

Made by `make licences` from the metadata of the packages in `requirements/*.lock`; do not edit.
None of their code is kept in this repository.
"""
PART_OF_PYTHON = ("pip", "setuptools")
PINNED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


class Command(BaseCommand):
    help = "Write docs/licences.md. `make licences` installs what this needs, and calls it."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--check", action="store_true", help="write nothing; fail when the file is out of date"
        )

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        path = settings.BASE_DIR / "docs" / "licences.md"
        text = render(settings.BASE_DIR / "requirements")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            self.stdout.write(f"Wrote {path}.")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            raise CommandError(f"{path} is out of date: run `make licences`.")


def render(requirements: Path) -> str:
    """The whole document: what a running installation holds, then what only development needs."""
    run, mysql, dev = (_pins(requirements / f"{name}.lock") for name in ("run", "mysql", "dev"))
    licences = _licences(sorted(dev))
    parts = [HEAD]
    for title, names in (
        ("In every installation", run),
        ("With the MySQL and MariaDB driver", mysql.keys() - run.keys()),
        ("For development and tests only", dev.keys() - mysql.keys()),
    ):
        rows = [f"| {name} | {dev[name]} | {licences[name]} |\n" for name in sorted(names)]
        parts.append(
            f"## {title}\n\n| package | version | licence |\n|---|---|---|\n" + "".join(rows)
        )
    return "\n".join(parts)


def _pins(lock: Path) -> dict[str, str]:
    pins = dict(PINNED.findall(lock.read_text(encoding="utf-8")))
    return {name: version for name, version in pins.items() if name not in PART_OF_PYTHON}


def _licences(names: list[str]) -> dict[str, str]:
    """Each package's licence in its own words. CommandError when one is not installed here."""
    command = [sys.executable, "-m", "piplicenses", "--from=mixed", "--format=json"]
    command += ["--with-system", "--packages", *names]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise CommandError(f"pip-licenses failed: {ended.stderr.strip()[-500:]}")
    licences = {
        re.sub(r"[-_.]+", "-", one["Name"]).lower(): one["License"]
        for one in json.loads(ended.stdout)
    }
    if missing := set(names) - licences.keys():
        raise CommandError(f"not installed here: {', '.join(sorted(missing))}")
    return licences
