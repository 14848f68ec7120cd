"""Temporary directories with a process in them, removed only when both are proven to be ours (K5).

Three facts must agree before anything is killed or removed: the process id, the start time of that
process, and the random token of the ownership file. The directory's name is a digest of that token.
"""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OWNERSHIP_FILE = "ownership.json"
END_SECONDS_MAX = 10.0


class NotOurs(RuntimeError):
    """The proof of ownership failed; nothing was killed or removed."""


def identity_of(pid: int) -> str | None:
    """Process id and start time of a live process; None when there is none, or a zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if words[0] == "Z" else f"{pid}@{words[19]}"


@dataclass
class OwnedDirectory:
    """A directory of this process, and the one process (a server) that lives in it."""

    path: Path
    token: str
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    @classmethod
    def create(cls, prefix: str) -> "OwnedDirectory":
        """A fresh directory, mode 0700, with its ownership file."""
        token = secrets.token_hex(16)
        path = Path(tempfile.gettempdir()) / (prefix + _digest(token))
        path.mkdir(mode=0o700)
        owned = cls(path, token)
        owned._record(server=None)
        return owned

    def adopt(self, process: "subprocess.Popen[bytes]") -> None:
        """Record the server process that works in this directory."""
        self.process = process
        self._record(server=identity_of(process.pid))

    def remove(self) -> None:
        """End the server and remove the directory; NotOurs when the proof fails."""
        proof = read_proof(self.path)
        if proof is None or proof["token"] != self.token:
            raise NotOurs(f"{self.path} does not hold our ownership file")
        if self.process is not None:
            if self.process.poll() is None:
                _end(proof["server"], pid=self.process.pid)
            self.process.wait()
        shutil.rmtree(self.path)

    def _record(self, *, server: str | None) -> None:
        proof = {"token": self.token, "owner": identity_of(os.getpid()), "server": server}
        draft = self.path / f"{OWNERSHIP_FILE}.part"
        draft.write_text(json.dumps(proof))
        draft.replace(self.path / OWNERSHIP_FILE)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def read_proof(path: Path) -> dict[str, Any] | None:
    """The ownership file of a directory, when it is this user's and fits the directory's name."""
    try:
        status = path.lstat()
        if path.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return None
        proof = json.loads((path / OWNERSHIP_FILE).read_text())
        fits = path.name.endswith(_digest(proof["token"]))
        return proof if fits and {"owner", "server"} <= proof.keys() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remove_stale(prefix: str) -> list[Path]:
    """Remove directories whose owner is gone (a killed test run); returns them.

    A directory without valid proof, or whose owner still lives, is left alone.
    """
    removed = []
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        proof = read_proof(path)
        if proof is None or _lives(proof["owner"]):
            continue
        if _lives(proof["server"]):
            _end(proof["server"], pid=_pid(proof["server"]))
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
        removed.append(path)
    return removed


def _pid(identity: str) -> int:
    return int(identity.partition("@")[0])


def _lives(identity: str | None) -> bool:
    return identity is not None and identity_of(_pid(identity)) == identity


def _end(identity: str | None, *, pid: int) -> None:
    """Kill the process with exactly this identity and wait until it is gone."""
    if identity is None or identity_of(pid) != identity:
        raise NotOurs(f"process {pid} is not the one we started")
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + END_SECONDS_MAX
    while identity_of(pid) == identity:
        if time.monotonic() > deadline:
            raise NotOurs(f"process {pid} did not end")
        time.sleep(0.01)
