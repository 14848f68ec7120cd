"""The JSONL copy of the audit: one exporter reads the rows and appends them to a file (M2).

Rows go out in the order of (at, id), those younger than `audit_copy_lag_seconds` later: a row may
be committed some seconds after its time was taken. The file is fsynced before the position moves.
Where the file ends is the truth: a process that died between the two reads its tail, cuts off an
unfinished line and goes on after the last row that is there, so that none is written twice. The
position beside it is for a file that was moved away.
"""

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.db.models import Q

from kernel import clock
from kernel.audit.lines import line_of
from kernel.conf import conf
from kernel.models import AuditRow
from kernel.transactions import reading

log = logging.getLogger(__name__)

PATH_VARIABLE = "BAILING_AUDIT_JSONL"
TAIL_BYTES = 64 * 1024

Position = tuple[datetime, str]


@dataclass(frozen=True, slots=True)
class AuditCopy:
    """The copy at `path`; `copy_next` is a page of the maintenance pass `audit_copy`."""

    path: Path

    def copy_next(self, *, limit: int) -> int:
        """Append up to `limit` rows; how many. Nothing while another process does it.

        OSError when the disk refuses: the pass backs off, and nothing is lost.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock() as is_ours:
            if not is_ours:
                return 0
            rows = _rows(after=self.position(), limit=limit)
            if rows:
                self._append(rows)
                self._save_position(rows[-1])
        return len(rows)

    def position(self) -> Position | None:
        """The last row that is in the file, or was when the file was moved away."""
        self._cut_unfinished_line()
        return _end_of(self.path) or max(filter(None, (self._saved(), self._full())), default=None)

    def rotated(self) -> list[Path]:
        """The full files, oldest first: `audit.jsonl.000001` and so on."""
        return sorted(self.path.parent.glob(f"{self.path.name}.[0-9]*"))

    # --- the file ---------------------------------------------------------------------------------

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        with Path(f"{self.path}.lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True

    def _append(self, rows: Sequence[AuditRow]) -> None:
        if self.path.exists() and self.path.stat().st_size >= conf.audit_copy_file_bytes_max:
            last = [int(each.suffix[1:]) for each in self.rotated()[-1:]] or [0]
            self.path.rename(f"{self.path}.{last[0] + 1:06d}")
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(b"".join(map(line_of, rows)))
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(self.path.parent)

    def _cut_unfinished_line(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            end = size
            while end > 0:
                start = max(0, end - TAIL_BYTES)
                file.seek(start)
                found = file.read(end - start).rfind(b"\n")
                if found >= 0:
                    end = start + found + 1
                    break
                end = start
            if end < size:
                log.warning("%s: cut off an unfinished line of %d bytes", self.path, size - end)
                file.truncate(end)
                os.fsync(file.fileno())

    def _full(self) -> Position | None:
        """Where the full files end: behind the saved position when a later one was moved away."""
        return next(filter(None, map(_end_of, reversed(self.rotated()))), None)

    # --- the position -----------------------------------------------------------------------------

    @property
    def _beside(self) -> Path:
        return Path(f"{self.path}.position")

    def _saved(self) -> Position | None:
        if not self._beside.exists():
            return None
        value = json.loads(self._beside.read_text())
        return datetime.fromisoformat(value["at"]), value["id"]

    def _save_position(self, row: AuditRow) -> None:
        fresh = Path(f"{self._beside}.new")
        with fresh.open("w") as file:
            json.dump({"at": row.at.isoformat(timespec="microseconds"), "id": row.id}, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self._beside)
        _sync_directory(self.path.parent)


def copy_from_environment() -> AuditCopy | None:
    """The copy that `BAILING_AUDIT_JSONL` asks for; None when it is not set (the default)."""
    path = os.environ.get(PATH_VARIABLE, "")
    return AuditCopy(Path(path).absolute()) if path else None


@reading
def _rows(*, after: Position | None, limit: int) -> list[AuditRow]:
    until = clock.db_now() - timedelta(seconds=conf.audit_copy_lag_seconds)
    rows = AuditRow.objects.filter(at__lte=until)
    if after is not None:
        at, row_id = after
        rows = rows.filter(at__gte=at).filter(Q(at__gt=at) | Q(id__gt=row_id))
    return list(rows.order_by("at", "id")[:limit])


def _end_of(path: Path) -> Position | None:
    if not path.exists() or not path.stat().st_size:
        return None
    last = json.loads(_last_line(path))
    return datetime.fromisoformat(last["at"]), last["id"]


def _last_line(path: Path) -> bytes:
    """The last whole line, however long: the file ends with one."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        start, data = end, b""
        while start > 0 and data.count(b"\n") < 2:
            start = max(0, start - TAIL_BYTES)
            file.seek(start)
            data = file.read(end - start)
        return data.rstrip(b"\n").rpartition(b"\n")[2]


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
