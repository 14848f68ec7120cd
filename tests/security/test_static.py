"""What a static look finds: bandit over the product, each exception with its reason."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_bandit_finds_nothing_that_is_not_explained():
    done = subprocess.run(
        [sys.executable, "-m", "bandit", "-q", "-c", "pyproject.toml", "-r", "kernel", "console"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


def test_each_exception_has_its_reason():
    text = (ROOT / "pyproject.toml").read_text()
    skipped = tomllib.loads(text)["tool"]["bandit"]["skips"]
    assert skipped
    for name in skipped:
        assert re.search(rf'# \S.{{20,}}\n(?:\s+"B\d+",\n)*\s+"{name}",', text), name
