"""Suite flags (K4): unset is an explicit skip that creates nothing; set without a server fails."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.environment import child_environment, is_foreign

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "BAILING_USAGE_PROCESS_CRASH_TEST",
    "BAILING_USAGE_TEST_MYSQL",
    "BAILING_APPROVAL_CONTINUATION_TEST_MYSQL",
    "BAILING_NOTIFICATION_TEST_MYSQL",
]
SUITE = """
import pathlib
import pytest

@pytest.mark.parametrize(
    "flag",
    [pytest.param(flag, marks=pytest.mark.mysql(flag)) for flag in {flags}],
)
def test_needs_the_server(mysql_schema, flag):
    pathlib.Path({seen!r}).write_text(mysql_schema)
"""


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Path]:
    """A suite beside this file, so that it gets the fixtures of tests/conftest.py."""
    path = Path(__file__).parent / f"flagged_{os.getpid()}.py"
    path.write_text(SUITE.format(flags=FLAGS, seen=str(tmp_path / "seen")))
    (tmp_path / "temporary").mkdir()
    yield path
    path.unlink()


def _run(suite: Path, tmp_path: Path, **flags: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        "PATH": os.environ["PATH"],
        "TMPDIR": str(tmp_path / "temporary"),
        "PYTHONDONTWRITEBYTECODE": "1",
        **flags,
    }
    command = [sys.executable, "-m", "pytest", "-rs", str(suite)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_unset_flags_are_explicit_skips_and_nothing_is_created(suite: Path, tmp_path: Path) -> None:
    ended = _run(suite, tmp_path, **{FLAGS[1]: "0"})
    assert ended.returncode == 0, ended.stdout
    assert "4 skipped" in ended.stdout
    for flag in FLAGS:
        assert f"{flag} is not set" in ended.stdout
    assert not (tmp_path / "seen").exists()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_set_flags_without_their_server_are_failures(suite: Path, tmp_path: Path) -> None:
    flags = {**dict.fromkeys(FLAGS, "1"), "BAILING_TEST_MYSQL_URL": "mysql://root@127.0.0.1:1"}
    ended = _run(suite, tmp_path, **flags)
    assert ended.returncode == 1
    assert "4 errors" in ended.stdout
    assert not (tmp_path / "seen").exists()


@pytest.mark.parametrize(
    "name",
    [
        "BAILING_DATABASE_URL",
        "BAILING_ADMIN_PASSWORD",
        "BAILING_DISPATCH_LEASE_SECONDS",
        "MYSQL_PASSWORD",
        "MYSQL_PWD",
        "DJANGO_SECRET_KEY",
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
    ],
)
def test_what_belongs_to_an_installation_or_a_provider_reaches_no_test(name: str) -> None:
    assert is_foreign(name)


def test_a_run_strips_what_is_foreign_and_a_child_starts_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import os, tests.settings as s\n"
        "print(os.environ.get('OPENAI_API_KEY'), s.DATABASES['default']['ENGINE'], s.SECRET_KEY)\n"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "OPENAI_API_KEY": "sk-real",
        "BAILING_DATABASE_URL": "mysql://root@192.0.2.1/production",
        "DJANGO_SECRET_KEY": "real",
    }
    command = [sys.executable, "-c", script]
    printed = subprocess.check_output(command, cwd=ROOT, env=environment, text=True)
    assert printed.split() == [
        "None",
        "django.db.backends.sqlite3",
        "synthetic-secret-key-of-the-tests",
    ]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    child = child_environment(database_url="sqlite:////tmp/x", BAILING_DISPATCH_LEASE_SECONDS="5")
    assert "OPENAI_API_KEY" not in child
    assert child["BAILING_DISPATCH_LEASE_SECONDS"] == "5"


def test_a_child_keeps_the_limits_it_was_given() -> None:
    script = (
        "import tests.settings\nfrom kernel.conf import conf\nprint(conf.dispatch_lease_seconds)"
    )
    printed = subprocess.check_output(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=child_environment(database_url="sqlite:////tmp/x", BAILING_DISPATCH_LEASE_SECONDS="7"),
        text=True,
    )
    assert printed.strip() == "7"
