"""Nothing is killed or removed before process id, start time and ownership file agree (K5)."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.owned import (
    OWNERSHIP_FILE,
    NotOurs,
    OwnedDirectory,
    identity_of,
    read_proof,
    remove_stale,
)
from tests.support.wait import wait_until

PREFIX = "bz-owned-"
GONE = "4194305@1"  # a pid above the kernel's limit: nobody


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def _rewrite(owned: OwnedDirectory, **changes: object) -> None:
    path = owned.path / OWNERSHIP_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_removing_ends_the_process_and_takes_the_directory_away(
    sleeper: "subprocess.Popen[bytes]",
) -> None:
    owned = OwnedDirectory.create(PREFIX)
    owned.adopt(sleeper)
    (owned.path / "data").mkdir()
    owned.remove()
    assert sleeper.returncode == -9
    assert not owned.path.exists()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"token": "0" * 32}, id="another token"),
        pytest.param({"server": GONE}, id="another process id"),
        pytest.param({"server": None}, id="no process"),
    ],
)
def test_a_proof_that_does_not_fit_kills_and_removes_nothing(
    sleeper: "subprocess.Popen[bytes]", changes: dict[str, object]
) -> None:
    owned = OwnedDirectory.create(PREFIX)
    owned.adopt(sleeper)
    _rewrite(owned, **changes)
    with pytest.raises(NotOurs):
        owned.remove()
    assert sleeper.poll() is None
    assert owned.path.is_dir()


def test_a_process_id_that_was_given_to_another_process_is_not_killed(
    sleeper: "subprocess.Popen[bytes]",
) -> None:
    owned = OwnedDirectory.create(PREFIX)
    owned.adopt(sleeper)
    _rewrite(owned, server=f"{sleeper.pid}@1")
    with pytest.raises(NotOurs):
        owned.remove()
    assert sleeper.poll() is None


def test_a_killed_run_is_cleaned_up_by_the_next_one(place: Path) -> None:
    script = (
        "import os, subprocess, sys, tempfile\n"
        f"tempfile.tempdir = {str(place)!r}\n"
        "from tests.support.owned import OwnedDirectory\n"
        f"owned = OwnedDirectory.create({PREFIX!r})\n"
        "owned.adopt(subprocess.Popen(['sleep', '600'], stdout=-3, stderr=-3))\n"
        "print(owned.process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert ended.returncode == -9
    orphan = int(ended.stdout)
    assert identity_of(orphan) is not None
    assert len(remove_stale(PREFIX)) == 1
    assert list(place.iterdir()) == []
    wait_until(lambda: identity_of(orphan) is None, about="the orphan to end")


def test_the_directory_of_a_living_run_is_left_alone() -> None:
    owned = OwnedDirectory.create(PREFIX)
    assert remove_stale(PREFIX) == []
    assert owned.path.is_dir()


def test_a_directory_without_a_valid_proof_is_left_alone(place: Path) -> None:
    owned = OwnedDirectory.create(PREFIX)
    _rewrite(owned, owner=GONE)
    moved = owned.path.rename(place / f"{PREFIX}somebody-elses")
    bare = place / f"{PREFIX}bare"
    bare.mkdir(mode=0o700)
    link = place / f"{PREFIX}link"
    link.symlink_to(moved)
    open_to_all = OwnedDirectory.create(PREFIX)
    _rewrite(open_to_all, owner=GONE)
    open_to_all.path.chmod(0o755)
    assert remove_stale(PREFIX) == []
    assert all(path.exists() for path in (moved, bare, link, open_to_all.path))


def test_the_directory_is_private_and_its_name_is_made_from_the_token() -> None:
    owned = OwnedDirectory.create(PREFIX)
    assert owned.path.stat().st_mode & 0o777 == 0o700
    proof = read_proof(owned.path)
    assert proof is not None
    assert proof["owner"] == identity_of(os.getpid())
