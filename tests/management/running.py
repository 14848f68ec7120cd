"""Running commands: in this process, as a person would read them, or as a process of their own."""

import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command
from django.db import connection

from kernel.models import AuditRow
from tests.support.environment import child_environment

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Answer:
    """What a command printed, its exit code, and the sentence it failed with, else its warnings."""

    code: int
    out: str
    error: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def run(*words: str) -> Answer:
    """Run `manage.py <words>` here. Only a CommandError is an answer; anything else is a defect."""
    out, warned = io.StringIO(), io.StringIO()
    try:
        call_command(*words, stdout=out, stderr=warned)
    except CommandError as error:
        return Answer(error.returncode, out.getvalue(), str(error))
    return Answer(0, out.getvalue(), warned.getvalue())


def done(*words: str) -> Answer:
    """The same, for a command that must succeed."""
    answer = run(*words)
    assert answer.code == 0, answer.error
    return answer


def last_act() -> AuditRow:
    """The newest audit row."""
    row = AuditRow.objects.order_by("-at", "-id").first()
    assert row is not None
    return row


def database_url() -> str:
    """This run's database, as a child process is told it."""
    entry = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{entry['NAME']}"
    place = f"{entry['HOST']}:{entry['PORT']}/{entry['NAME']}"
    return f"mysql://{entry['USER']}:{entry['PASSWORD']}@{place}"


def start(*words: str, url: str = "", folder: Path, **more: str) -> "subprocess.Popen[str]":
    """`manage.py <words>` as a process of its own; `folder` is where it may write."""
    return subprocess.Popen(
        [sys.executable, "manage.py", *words],
        cwd=ROOT,
        env=child_environment(database_url=url or database_url(), TMPDIR=str(folder), **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_process(*words: str, url: str = "", folder: Path, **more: str) -> Answer:
    """Run it to its end."""
    with start(*words, url=url, folder=folder, **more) as process:
        out, error = process.communicate(timeout=60)
    return Answer(process.returncode, out, error)
