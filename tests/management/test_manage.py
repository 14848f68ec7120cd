"""manage.py under a bare python: it takes the environment of `make run`, or says what to do."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.tidy.tree import ROOT

# Outside any environment, and (-S) without what is installed for the whole machine.
BARE = [str(Path(sys.base_prefix) / "bin" / "python3"), "-S"]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "manage.py", folder)
    return subprocess.run(
        [*BARE, "manage.py", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_bare_python_takes_the_environment_that_is_there(tmp_path: Path) -> None:
    theirs = tmp_path / ".venv" / "bin" / "python"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('#!/bin/sh\necho "environment: $@"\n')
    theirs.chmod(0o755)
    ended = run(tmp_path, "job", "list")
    assert (ended.returncode, ended.stdout) == (0, "environment: manage.py job list\n")


def test_without_one_it_says_in_one_line_what_to_do(tmp_path: Path) -> None:
    ended = run(tmp_path, "job", "list")
    assert ended.returncode == 1
    assert "run `make run` once" in ended.stderr and "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
