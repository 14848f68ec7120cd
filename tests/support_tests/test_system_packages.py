"""What the machine lacks is installed through apt when we may; else one command is printed."""

from collections.abc import Callable

import pytest

from tests.support import system_packages
from tests.support.system_packages import main

Calls = list[list[str]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Needs: one that is there, one that comes with its package. Records what would be run."""
    recorded: Calls = []
    needs = [
        (("here",), lambda: True),
        (("lacking", "other-name"), lambda: any("install" in call for call in recorded)),
    ]
    monkeypatch.setattr(system_packages, "NEEDS", {"test": needs, "build": needs[:1]})
    monkeypatch.setattr(system_packages.shutil, "which", lambda name: f"/usr/bin/{name}")
    return recorded


def _answer(calls: Calls, *, code: int = 0, output: str = "") -> Callable[..., object]:
    def run(command: list[str], **_options: object) -> object:
        calls.append(command)
        return type("Ended", (), {"returncode": code, "stdout": output})()

    return run


def test_nothing_is_run_when_nothing_is_missing(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_packages.subprocess, "run", _answer(calls))
    assert main(["build"]) == 0
    assert calls == []


def test_root_installs_only_what_is_missing(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_packages.os, "geteuid", lambda: 0)
    monkeypatch.setattr(system_packages.subprocess, "run", _answer(calls, output="Candidate: 1"))
    assert main(["build", "test"]) == 0
    assert "sudo" not in calls[-1]
    assert calls[-1][-1] == "lacking"
    assert "here" not in calls[-1]


def test_the_distribution_s_own_name_is_taken(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_options: object) -> object:
        calls.append(command)
        known = command[-1] == "other-name"
        words = "Candidate: 1.0" if known else "Candidate: (none)"
        return type("Ended", (), {"returncode": 0, "stdout": words})()

    monkeypatch.setattr(system_packages.os, "geteuid", lambda: 0)
    monkeypatch.setattr(system_packages.subprocess, "run", run)
    assert main(["test"]) == 0
    assert calls[-1][-1] == "other-name"


def test_without_the_right_to_install_the_one_command_is_printed(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system_packages.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(system_packages.subprocess, "run", _answer(calls, code=1))
    assert main(["test"]) == 1
    assert "sudo apt-get install -y lacking" in capsys.readouterr().err
    assert calls == [["sudo", "-n", "true"]]


def test_a_failed_installation_is_a_failure(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system_packages.os, "geteuid", lambda: 0)
    monkeypatch.setattr(system_packages.subprocess, "run", _answer(calls, code=100))
    assert main(["test"]) == 1
    assert "could not install" in capsys.readouterr().err
