"""What every command keeps to: help that helps, one plain sentence for an error, safe output."""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import load_command_class

from kernel.errors import CommitOutcomeUnknown, Conflict, InvalidInput, NotFound
from kernel.management.base import actor, parse_time, plain, plain_errors, shown
from tests.management.running import ROOT, done, run, run_process, start
from tests.support import lives
from tests.support.commits import LANDED, at_commit
from tests.support.environment import child_environment

NAMES = (
    "account",
    "audit_head",
    "audit_verify",
    "db_init",
    "db_verify",
    "doctor",
    "explain_charge",
    "maintain",
    "person",
    "price",
    "service",
    "state_machines",
    "token",
)


def parsers(name: str) -> Iterator[argparse.ArgumentParser]:
    """The parser of a command and those of its acts."""
    waiting: list[argparse.ArgumentParser] = [
        load_command_class("kernel", name).create_parser("manage.py", name)
    ]
    while waiting:
        parser = waiting.pop()
        yield parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()


@pytest.mark.parametrize("name", NAMES)
def test_every_command_act_and_option_says_what_it_does(name: str) -> None:
    for parser in parsers(name):
        assert parser.description, parser.prog
        assert parser.format_help()
        silent = [
            action.dest
            for action in parser._actions
            if not action.help and not isinstance(action, argparse._SubParsersAction)
        ]
        assert silent == [], parser.prog


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_of_every_help_fit_a_terminal(name: str) -> None:
    for parser in parsers(name):
        assert [line for line in parser.format_help().splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("name", ["account", "service", "token", "price", "person"])
def test_a_command_without_an_act_names_the_acts(name: str) -> None:
    answer = run(name)
    assert answer.code == 1
    assert "ACT" in answer.error


# --- errors -----------------------------------------------------------------------------------


def test_an_error_is_one_sentence_on_stderr_and_no_traceback(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.sqlite3'}"
    answer = run_process("account", "create", "acme", url=url, folder=tmp_path)
    assert (answer.code, answer.out) == (2, "")
    assert answer.error.startswith("CommandError: The schema is not ready: missing")
    assert answer.error.rstrip().endswith("Run manage.py db_init.")
    assert len(answer.error.splitlines()) == 1


def test_a_database_that_is_away_is_said_plainly(tmp_path: Path) -> None:
    url = "mysql://root@127.0.0.1:9/nothing"
    answer = run_process("account", "list", url=url, folder=tmp_path)
    assert answer.code == 1
    assert "The database does not answer" in answer.error
    assert "Traceback" not in answer.error


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "manage.py", "account", "create", "acme", "--name", b"\xff\xfe"],
        cwd=ROOT,
        env=child_environment(database_url=f"sqlite:///{tmp_path / 'x'}", TMPDIR=str(tmp_path)),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 1
    assert process.stderr == b"CommandError: name: not valid UTF-8\n"


def test_a_reader_that_has_seen_enough_leaves_no_traceback(kernel_db: None, tmp_path: Path) -> None:
    with start("price", "lookup", "openai/gpt-4o", folder=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        error = process.stderr.read()
    assert "Traceback" not in error
    assert "BrokenPipe" not in error


def test_a_lost_acknowledgement_says_to_look_before_repeating(kernel_db: None) -> None:
    with at_commit("create_account", LANDED) as fault:
        answer = run("account", "create", "acme")
    assert fault.fired == 1
    assert answer.code == 1
    assert "It may have taken effect: look before you repeat it." in answer.error
    assert "acme" in done("account", "list").out


def test_a_race_lost_to_somebody_else_says_to_read_again(
    kernel_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = lives.open_account("acme")
    done("account", "change", "acme", "--name", "Other")

    class Summary:
        account = stale

    monkeypatch.setattr(
        "kernel.management.commands.account.usage.account_summary", lambda **_: Summary
    )
    answer = run("account", "change", "acme", "--name", "Mine")
    assert answer.code == 1
    assert "was changed meanwhile. Read the object again, then decide." in answer.error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NotFound("no account x"), "No account x."),
        (Conflict("taken", next_action="Take another."), "Taken. Take another."),
        (InvalidInput("1 or more", field="max_tokens"), "max_tokens: 1 or more."),
        (InvalidInput("a cap is zero or more", field="cap_nano"), "a cap is zero or more."),
        (NotFound("no \x1b[31m"), "No \\u001b[31m."),
    ],
)
def test_an_error_names_what_is_wrong_and_the_way_out(error: Exception, text: str) -> None:
    assert plain(error) == text


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), plain_errors():
        raise ZeroDivisionError
    with pytest.raises(Exception, match="look before you repeat"), plain_errors():
        raise CommitOutcomeUnknown("Lost.")


# --- the actor, values, times -----------------------------------------------------------------


def test_the_actor_is_the_operating_systems_user_not_a_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LOGNAME", "USER", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert actor().kind == "command"
    assert actor().id != "somebody-else"
    monkeypatch.setattr("os.getuid", lambda: 2_000_000_001)
    assert actor().id == "uid-2000000001"


def test_shown_values_hold_no_invisible_characters() -> None:
    assert (
        shown("a\x1b\u202e\u200b\ud800\nb é 日本") == "a\\u001b\\u202e\\u200b\\ud800\\u000ab é 日本"
    )
    assert [shown(value) for value in (None, "", True, False, 0)] == ["-", "-", "yes", "no", "0"]


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_time("2025-01-31").isoformat() == "2025-01-31T00:00:00+00:00"
    assert parse_time("2025-01-31T09:30+02:00").isoformat() == "2025-01-31T09:30:00+02:00"
    assert parse_time("2025-01-31T09:30Z").utcoffset() is not None
    with pytest.raises(ValueError, match="write a time such as"):
        parse_time("yesterday")
