"""manage.py itself: wrong settings are one line for every command; help lists ours first."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernel.management.line import CommandLine
from tests.management.running import ROOT, run_process
from tests.support.environment import child_environment


@pytest.mark.parametrize(
    ("words", "name", "value", "told"),
    [
        (
            "db_init --check",
            "BAILING_JOB_LEASE_SECONDS",
            "99999",
            "BAILING_JOB_LEASE_SECONDS is '99999'; it must be a whole number from 5 to 3600 (a job"
            " is owned this long). Change it in .env or in the environment, or remove it: the"
            " default is 60.\n",
        ),
        (
            "standalone",
            "BAILING_DATABASE_URL",
            "postgres://u:hidden-word@h/n",
            "BAILING_DATABASE_URL must look like"
            " mysql://user:password@host:3306/name, mysql://...?ssl-ca=/path or sqlite:///path\n",
        ),
        (
            "help",
            "BAILING_ENGINE",
            "rails",
            "BAILING_ENGINE must be celery or not set, not 'rails'\n",
        ),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_1(
    tmp_path: Path, words: str, name: str, value: str, told: str
) -> None:
    answer = run_process(*words.split(), url="sqlite:///unused", folder=tmp_path, **{name: value})
    assert (answer.code, answer.out, answer.error) == (1, "", told)


@pytest.mark.parametrize(
    ("command", "engine", "told"),
    [
        (
            "uvicorn console.asgi:application",
            "rails",
            "BAILING_ENGINE must be celery or not set, not 'rails'\n",
        ),
        (
            "celery -A console.celery worker",
            "rails",
            "BAILING_ENGINE must be celery or not set, not 'rails'\n",
        ),
        (
            "celery -A console.celery beat",
            "",
            "Celery runs only with BAILING_ENGINE=celery in the environment.\n",
        ),
    ],
)
def test_a_server_over_wrong_settings_ends_with_one_line(
    tmp_path: Path, command: str, engine: str, told: str
) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=ROOT,
        env=child_environment(
            database_url="sqlite:///unused", TMPDIR=str(tmp_path), BAILING_ENGINE=engine
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (1, "", told)


def test_help_lists_our_commands_first() -> None:
    text = CommandLine(["manage.py", "help"]).main_help_text()
    ours, theirs = text.index("[kernel]"), text.index("[auth]")
    assert ours < text.index("db_init") < theirs
    assert text.count("[kernel]") == 1 and "Available subcommands:" in text[:ours]
    names = CommandLine(["manage.py", "help"]).main_help_text(commands_only=True).split("\n")
    assert names == sorted(names) and "db_init" in names
