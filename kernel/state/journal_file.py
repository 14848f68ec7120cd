"""A file of records, one JSON line each: locked, chained by hash, fsynced per record (M1).

A line is `<sha256> <json>`; the sha256 is over the one of the line before and this json. What was
written is durable when `append` returns. An unfinished last line was never acknowledged and is cut
off at the next opening; any other damage refuses to open, because what it hides is not known. The
first record is the head: it says what the file is. `rewrite` leaves out what is outdated.
"""

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from kernel.errors import KernelError, Unavailable

log = logging.getLogger(__name__)

START = "0" * 64
HEX_CHARS = 64


class StoreDamaged(KernelError):
    """A whole line does not fit: edited, missing, moved, or not ours. Nothing was opened."""

    code = "store_damaged"
    next_action = "Restore the file from a backup, or inspect it; it is not opened as it is."


class JournalFile:
    """One open file of records; at most one process has it."""

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        """Take the lock and open. Unavailable `store_locked` when another process has it.

        A link is followed first: one file has one lock, and is what a rewrite replaces.
        """
        path = path.resolve()
        self.path, self._head = path, head
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = Path(f"{path}.lock").open("w")  # noqa: SIM115  # held until close()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise Unavailable(
                f"Another process has the store {path} open.",
                code="store_locked",
                next_action="A JSONL store has one writer: stop the other process first.",
            ) from None
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._sync_directory()
        self._sha256 = START
        self._broken = False

    def records(self) -> Iterator[dict[str, Any]]:
        """Every record after the head in order, once, before the first append. StoreDamaged.

        Cuts off an unfinished last line; begins a new file with its head.
        """
        records = self._lines()
        head = next(records, None)
        if head is None:
            self.append(self._head)
        elif head != self._head:
            raise StoreDamaged(f"{self.path} is no store of this version.", line=1)
        yield from records

    def rewrite(self, records: Iterable[dict[str, Any]]) -> None:
        """Replace the file by its head and these records; a death leaves the old one or the new.

        What the disk refuses before that leaves the old file in use.
        """
        fresh, sha256 = Path(f"{self.path}.new"), START
        try:
            file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        except OSError as error:
            log.warning("%s could not be made smaller: %s", self.path, error.strerror)
            return
        try:
            for record in chain([self._head], records):
                sha256, line = _line(sha256, record)
                _write(file, line)
            os.fsync(file)
            fresh.replace(self.path)
        except BaseException as error:
            os.close(file)
            fresh.unlink(missing_ok=True)  # half a file must not keep a full disk full
            if not isinstance(error, OSError):
                raise
            log.warning("%s could not be made smaller: %s", self.path, error.strerror)
            return
        os.close(self._file)
        self._file, self._sha256 = file, sha256
        self._sync_directory()

    def _lines(self) -> Iterator[dict[str, Any]]:
        place, number = 0, 0
        with self.path.open("rb") as lines:
            for raw in lines:
                number += 1
                if not raw.endswith(b"\n"):
                    log.warning("%s: cut off an unfinished record of %d bytes", self.path, len(raw))
                    os.ftruncate(self._file, place)
                    os.fsync(self._file)
                    return
                yield self._read(raw[:-1], number)
                place += len(raw)

    def append(self, record: dict[str, Any]) -> None:
        """Write one record; it is durable when this returns.

        Unavailable `store_broken` when the disk refused one: what of it is in the file is not known
        then, so this process writes no more; opening the file again tells.
        """
        if self._broken:
            raise Unavailable(
                f"The store {self.path} failed to write earlier.",
                code="store_broken",
                next_action="Free the disk, then restart: the file is read again.",
            )
        sha256, line = _line(self._sha256, record)
        self._broken = True  # until proven otherwise
        try:
            _write(self._file, line)
            os.fsync(self._file)
        except OSError as error:
            raise Unavailable(
                f"The store {self.path} could not be written: {error.strerror}.",
                code="store_broken",
                next_action="Free the disk, then restart: the file is read again.",
            ) from error
        self._broken = False
        self._sha256 = sha256

    def close(self) -> None:
        """Let go of the file and its lock."""
        os.close(self._file)
        self._lock.close()

    def _read(self, raw: bytes, number: int) -> dict[str, Any]:
        sha256, text = raw[:HEX_CHARS].decode("ascii", "replace"), raw[HEX_CHARS + 1 :]
        if sha256 != _chained(self._sha256, text):
            raise StoreDamaged(f"{self.path}: line {number} is damaged.", line=number)
        self._sha256 = sha256
        record: dict[str, Any] = json.loads(text)
        return record

    def _sync_directory(self) -> None:
        """A new file's name is durable too."""
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _line(before: str, record: dict[str, Any]) -> tuple[str, bytes]:
    """The line of a record, and the sha256 that the next one is chained to."""
    text = json.dumps(record, separators=(",", ":"))
    sha256 = _chained(before, text.encode())
    return sha256, f"{sha256} {text}\n".encode()


def _write(file: int, line: bytes) -> None:
    view = memoryview(line)
    while view:
        view = view[os.write(file, view) :]


def _chained(before: str, text: bytes) -> str:
    return hashlib.sha256(before.encode() + text).hexdigest()
