"""A bulk replay by a real process, `manage.py maintain`, that is killed twice on the way (F9)."""

import hashlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.db import connection

from kernel import operations
from kernel.models import Notification, Operation, OperationItem, PassStatus
from kernel.operations import Filter
from tests.bench import post, product, rows
from tests.delivery.letters import ANN
from tests.support.mariadb_server import Server

KILLED_AT = (1 / 3, 2 / 3)
ADMISSIONS_PER_SECOND_MIN, MEMORY_MIB_MAX = 500, 100
LEASE_SECONDS = 5
WAIT_SECONDS = 1200.0


@dataclass(frozen=True, slots=True)
class Result:
    """One bulk replay. Rates are of the time in which a process worked, `seconds` is of all."""

    letters: int
    items: int
    request_ms: float  # what the request that plans it took
    frozen_per_second: float
    admitted_per_second: list[float]  # of each process
    seconds: float
    memory_mib: float  # the most of any process over what one had before it worked
    interruptions: int


class Maintainer:
    """`manage.py maintain` on one schema; killed and started again."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self.start()

    def start(self) -> None:
        """A new process."""
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", "maintain"],
            cwd=product.ROOT,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        """SIGKILL: nothing is given back."""
        self._process.kill()
        self._process.wait()

    def memory_mib(self, name: str) -> float:
        """VmRSS now, VmHWM at most."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found, status
        return int(found.group(1)) / 1024


def measure(server: Server, *, count: int, items: int) -> Result:
    """Plan, freeze, apply, kill twice, finish; RuntimeError when anything is not exact."""
    with rows.migrated(server) as name:
        post.letters(count=count, to_back=items)
        connection.close()
        with _maintained(server.url(name)) as process:
            _wait(lambda: PassStatus.objects.filter(name="operations").exists())
            base = process.memory_mib("VmRSS")
            began = time.perf_counter()
            row = operations.plan_replay(
                filter=Filter(destination_id="dst_back"),
                actor=ANN,
                reason="the receiver is back",
                rate_per_second=100_000,
            )
            request_ms = (time.perf_counter() - began) * 1000
            _wait(lambda: _again(row).state == "planned")
            freezing = time.perf_counter() - began
            row = operations.apply(operation_id=row.id, actor=ANN, seen_digest=_digest(row, items))
            began, peaks, rates = time.perf_counter(), [], []
            for share in (*KILLED_AT, 1):
                rates.append(_rate(row, until=int(items * share)))
                peaks.append(process.memory_mib("VmHWM"))
                if share != 1:
                    process.kill()
                    process.start()
            seconds = time.perf_counter() - began
        _check(row, items=items)
        interruptions = _again(row).interruptions
        connection.close()
    return Result(
        count,
        items,
        request_ms,
        items / freezing,
        rates,
        seconds,
        max(peaks) - base,
        interruptions,
    )


@contextmanager
def _maintained(url: str) -> Iterator[Maintainer]:
    with tempfile.TemporaryDirectory(prefix="bz-bench-") as own:
        lease = str(LEASE_SECONDS)
        process = Maintainer(product.environment(url, own, BAILING_OPERATION_LEASE_SECONDS=lease))
        try:
            yield process
        finally:
            process.kill()


def _again(row: Operation) -> Operation:
    return Operation.objects.get(id=row.id)


def _wait(is_so: Callable[[], bool], every: float = 0.05) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError("what is measured did not happen in time")
        time.sleep(every)


def _rate(row: Operation, *, until: int) -> float:
    """Items per second of one process: from the first progress that is seen."""
    before = _again(row).done_count
    _wait(lambda: _again(row).done_count > before)
    first, began = _again(row).done_count, time.perf_counter()
    _wait(lambda: _again(row).done_count >= until)
    last, ended = _again(row).done_count, time.perf_counter()
    return (last - first) / (ended - began)


def _digest(row: Operation, items: int) -> str:
    """The digest of the frozen set, after looking whether it is that of its items."""
    ids = OperationItem.objects.filter(operation_id=row.id).order_by("sequence")
    text = "".join(f"{one}\n" for one in ids.values_list("object_id", flat=True).iterator())
    digest = hashlib.sha256(text.encode()).hexdigest()
    found = _again(row)
    if (found.item_count, found.digest, text.count("\n")) != (items, digest, items):
        raise RuntimeError(f"{found.item_count} of {items} are frozen, digest {found.digest}")
    return digest


def _check(row: Operation, *, items: int) -> None:
    """Every item is done, admitted once by one row and one line of audit; no other is."""
    found = _again(row)
    ends = (found.state, found.done_count, found.skipped_count, found.failed_count)
    if ends != ("done", items, 0, 0) or found.digest != _digest(row, items):
        raise RuntimeError(f"the operation is {ends}")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*), COUNT(DISTINCT subject) FROM bz_audit"
            " WHERE action = 'dead_letter.replay'"
        )
        audited = cursor.fetchone()
        cursor.execute(
            "SELECT COUNT(*) FROM bz_operation_items i JOIN bz_notifications n"
            " ON n.id = CONCAT('ntf_', i.object_id) AND n.replay_of_id = i.object_id"
        )
        (admitted,) = cursor.fetchone()
    if (audited, admitted, Notification.objects.count()) != ((items, items), items, items):
        raise RuntimeError(f"{audited} audited, {admitted} admitted, of {items}")
