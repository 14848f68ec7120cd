"""The flag of this suite (K4): unset it skips and creates nothing; without a server it fails."""

import os
import subprocess
import sys
from pathlib import Path

FLAG = "BAILING_USAGE_PROCESS_CRASH_TEST"
ROOT = Path(__file__).resolve().parents[2]


def _run(directory: Path, **flags: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        "PATH": os.environ["PATH"],
        "TMPDIR": str(directory),
        "PYTHONDONTWRITEBYTECODE": "1",
        **flags,
    }
    suite = ["tests/crash/test_settlement.py", "tests/histories/test_random_kills.py"]
    command = [sys.executable, "-m", "pytest", "-rs", *suite]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_without_the_flag_every_case_is_skipped_and_nothing_is_created(tmp_path: Path) -> None:
    ended = _run(tmp_path)
    assert ended.returncode == 0, ended.stdout
    assert f"{FLAG} is not set" in ended.stdout
    assert " passed" not in ended.stdout
    assert "faults planned" not in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_with_the_flag_and_no_server_every_case_fails(tmp_path: Path) -> None:
    ended = _run(tmp_path, **{FLAG: "1", "BAILING_TEST_MYSQL_URL": "mysql://root@127.0.0.1:1"})
    assert ended.returncode == 1, ended.stdout
    assert "skipped" not in ended.stdout
    assert " passed" not in ended.stdout
    assert "no database server answers" in ended.stdout
