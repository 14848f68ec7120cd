"""The JSONL copy of the audit: every row once, whenever its exporter dies (M2)."""

import fcntl
import json
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from kernel import audit, clock
from kernel.audit import export
from kernel.audit.export import AuditCopy, copy_from_environment
from kernel.audit.trail import digest
from kernel.conf import override
from kernel.models import AuditRow
from tests.kernel.test_audit import act

pytestmark = pytest.mark.usefixtures("kernel_db")


@pytest.fixture(autouse=True)
def no_lag(kernel_db: None):  # type: ignore[no-untyped-def]  # a generator
    with override(audit_copy_lag_seconds=0):
        yield


@pytest.fixture
def copy(tmp_path: Path) -> AuditCopy:
    return AuditCopy(tmp_path / "audit.jsonl")


def acts(count: int) -> None:
    for number in range(count):
        act(object_id=f"o-{number % 3}", reason="because é", after={"n": number})


def copied(copy: AuditCopy) -> list[dict[str, Any]]:
    paths = [*copy.rotated(), copy.path]
    return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]


def expected() -> list[str]:
    return list(AuditRow.objects.order_by("at", "id").values_list("id", flat=True))


def to_the_end(copy: AuditCopy, *, limit: int = 4) -> None:
    while copy.copy_next(limit=limit):
        pass


def in_a_child(work: Callable[[], object]) -> int:
    """The signal that ended a child process which did this; 0 when it came to its end."""
    pid = os.fork()
    if pid == 0:
        connection.connection = None  # the parent's: neither used nor closed here
        work()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def test_every_row_is_copied_once_in_order_and_can_be_hashed_again(copy: AuditCopy) -> None:
    acts(10)
    to_the_end(copy)
    acts(3)
    to_the_end(copy)
    lines = copied(copy)
    assert [line["id"] for line in lines] == expected()
    line = lines[7]
    row = AuditRow(**{**line, "at": clock.datetime.fromisoformat(line["at"])})
    assert digest(row) == line["sha256"]
    assert copy.path.stat().st_mode & 0o777 == 0o600
    with copy.path.open("rb") as file:
        assert list(audit.compare(file)) == []


@pytest.mark.parametrize("verb", ["_save_position", "_append"])
@pytest.mark.parametrize("after", [False, True])
def test_an_exporter_killed_around_its_steps_leaves_no_gap_and_no_duplicate(
    copy: AuditCopy, monkeypatch: pytest.MonkeyPatch, verb: str, after: bool
) -> None:
    acts(10)
    copy.copy_next(limit=4)
    real = getattr(AuditCopy, verb)

    def killed(self: AuditCopy, rows: Any) -> None:
        if after:
            real(self, rows)
        os.kill(os.getpid(), signal.SIGKILL)

    connection.close()
    with monkeypatch.context() as patch:
        patch.setattr(AuditCopy, verb, killed)
        assert in_a_child(lambda: copy.copy_next(limit=4)) == signal.SIGKILL
    saved = json.loads(Path(f"{copy.path}.position").read_text())["id"]
    is_behind = saved != copied(copy)[-1]["id"]
    assert is_behind == ((verb, after) in {("_save_position", False), ("_append", True)})
    to_the_end(copy)
    assert [line["id"] for line in copied(copy)] == expected()


def test_an_unfinished_line_is_cut_off_and_written_again(copy: AuditCopy) -> None:
    acts(6)
    copy.copy_next(limit=4)
    whole = copy.path.read_bytes()
    for torn in (whole[:-5], whole + b'{"at":"20', whole + b"\0" * 70_000, b'{"at"'):
        copy.path.write_bytes(torn)
        Path(f"{copy.path}.position").unlink(missing_ok=True)
        to_the_end(copy)
        assert [line["id"] for line in copied(copy)] == expected()


def test_a_full_file_makes_room_for_a_new_one_and_nothing_is_lost_between(
    copy: AuditCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts(12)
    with override(audit_copy_file_bytes_max=1024):
        to_the_end(copy, limit=2)
    assert [path.name for path in copy.rotated()][:2] == [
        "audit.jsonl.000001",
        "audit.jsonl.000002",
    ]
    assert [line["id"] for line in copied(copy)] == expected()
    copy.path.rename(f"{copy.path}.{len(copy.rotated()) + 1:06d}")  # died right after the rename
    acts(2)
    to_the_end(copy)
    assert [line["id"] for line in copied(copy)] == expected()


def test_a_file_that_was_moved_away_is_gone_on_from_the_saved_position(copy: AuditCopy) -> None:
    acts(5)
    to_the_end(copy)
    moved = copy.path.rename(copy.path.with_name("shipped"))
    acts(2)
    to_the_end(copy)
    assert len(moved.read_bytes().splitlines()) == 5
    assert [line["id"] for line in copied(copy)] == expected()[5:]


def test_a_file_that_was_moved_from_beside_full_ones_is_not_written_again(copy: AuditCopy) -> None:
    acts(6)
    with override(audit_copy_file_bytes_max=1024):
        to_the_end(copy, limit=2)
    assert copy.rotated()
    shipped = [line["id"] for line in copied(copy)]
    moved = len(copy.path.read_bytes().splitlines())
    copy.path.unlink()
    acts(2)
    to_the_end(copy)
    left = [line["id"] for line in copied(copy)]
    assert [*shipped[:-moved], *expected()[len(shipped) :]] == left


def test_only_one_process_exports(copy: AuditCopy) -> None:
    acts(3)
    with Path(f"{copy.path}.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert copy.copy_next(limit=4) == 0
        assert not copy.path.exists()
    assert copy.copy_next(limit=4) == 3


def test_a_row_that_is_committed_late_is_not_passed_by(copy: AuditCopy) -> None:
    acts(1)
    with override(audit_copy_lag_seconds=60):
        assert copy.copy_next(limit=4) == 0, "it waits for those that are older"
        late = act(object_id="late")
        old = clock.db_now() - timedelta(seconds=61)
        AuditRow.objects.exclude(id=late.id).update(at=old)
        assert copy.copy_next(limit=4) == 1
        AuditRow.objects.filter(id=late.id).update(at=old + timedelta(microseconds=1))
        assert copy.copy_next(limit=4) == 1
    assert [line["id"] for line in copied(copy)] == expected()


def test_it_is_off_until_a_path_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(export.PATH_VARIABLE, raising=False)
    assert copy_from_environment() is None
    monkeypatch.setenv(export.PATH_VARIABLE, str(tmp_path / "a.jsonl"))
    assert copy_from_environment() == AuditCopy(tmp_path / "a.jsonl")
