"""`make test` counts what ran, and a suite that ran nothing or broke is a failure."""

from pathlib import Path

import pytest

from tests.support import suites
from tests.support.mariadb_server import Server
from tests.support.suites import Outcome, Suite, count, report_all

SERVER = Server("127.0.0.1", 1, "no server")


def test_a_report_is_counted(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite tests="9" failures="2" errors="1" skipped="3"/></testsuites>'
    )
    assert count(report) == Outcome(passed=3, failed=3, skipped=3)


def test_a_run_without_a_report_is_a_failure(tmp_path: Path) -> None:
    assert count(tmp_path / "none.xml").failed == 1


@pytest.mark.parametrize(
    ("outcome", "line", "code"),
    [
        (Outcome(passed=4, skipped=1), "4 passed, 0 failed, 1 skipped", 0),
        (Outcome(passed=4, failed=2, exit_code=1), "4 passed, 2 failed, 0 skipped", 1),
        (Outcome(exit_code=5), "0 passed, 1 failed, 0 skipped", 1),
        (Outcome(passed=4, exit_code=3), "4 passed, 1 failed, 0 skipped", 1),
    ],
)
def test_the_closing_line_and_the_exit_code_agree(
    capsys: pytest.CaptureFixture[str], outcome: Outcome, line: str, code: int
) -> None:
    assert report_all({"one": outcome}) == code
    assert capsys.readouterr().out.splitlines()[-1] == line


def test_a_suite_gets_every_flag_and_the_shared_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, str] = {}

    def pytest_process(_command: list[str], *, env: dict[str, str], check: bool) -> object:
        seen.update(env)
        assert check is False
        return type("Ended", (), {"returncode": 0})()

    monkeypatch.setattr(suites.subprocess, "run", pytest_process)
    suites.run(Suite("one", "One", "mysql", []), SERVER, tmp_path, alone=True)
    assert all(seen[flag] == "1" for flag in suites.FLAGS)
    assert seen["BAILING_TEST_DATABASE"] == "mysql"
    assert seen["BAILING_TEST_MYSQL_URL"] == "mysql://root@127.0.0.1:1"


def test_an_unknown_suite_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert suites.main(["nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_side_by_side_every_suite_is_printed_whole_and_reported_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suites.sys, "executable", "/bin/echo")
    monkeypatch.setattr(suites.os, "cpu_count", lambda: 2)
    chosen = [Suite(name, name.upper(), "sqlite", [f"of-{name}"]) for name in ("one", "two")]
    outcomes = suites.run_all(chosen, SERVER, tmp_path)
    assert list(outcomes) == ["one", "two"]
    said = capsys.readouterr().out
    for name in outcomes:
        assert f"== {name.upper()} ({name})\n-m pytest --junit-xml={tmp_path}/{name}.xml" in said
