"""The JSONL store: one writer, durable records, a torn end, damage, and what it lacks (M1, F8)."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel import clock
from kernel.audit import length
from kernel.conf import override
from kernel.delivery import destinations, replay
from kernel.errors import CommitOutcomeUnknown, Unavailable
from kernel.kernel import Kernel
from kernel.models import Account, Destination, Job, Route
from kernel.state import Admission, JsonlStore, RuntimeStateStore, require
from kernel.state.journal_file import StoreDamaged
from kernel.state.protocol import ENSURE_REPLAY, REQUEUE_DELIVERY
from tests.delivery.letters import ANN, dead_child
from tests.state.place import CALLER, NOTHING, Boom, claimed, submitted, waiting
from tests.state.test_database_store import note_in_tx
from tests.support import delivery_data, lives
from tests.support.commits import LANDED, VANISHED, at_commit

pytestmark = pytest.mark.usefixtures("kernel_db")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.jsonl"


@pytest.fixture
def store(path: Path) -> Iterator[JsonlStore]:
    made = JsonlStore(path)
    yield made
    made.close()


def reopened(store: JsonlStore) -> JsonlStore:
    store._file.close()
    store.__init__(store._file.path)  # type: ignore[misc]  # the same object, opened again
    return store


def test_a_second_writer_is_refused_and_names_the_way_out(store: JsonlStore, path: Path) -> None:
    with pytest.raises(Unavailable) as refusal:
        JsonlStore(path)
    assert refusal.value.error_code == "store_locked"
    link = path.parent / "link.jsonl"
    link.symlink_to(path)
    with pytest.raises(Unavailable, match="open"):
        JsonlStore(link)
    code = (
        "import fcntl, sys\n"
        f"lock = open({str(path) + '.lock'!r})\n"
        "fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, timeout=30
    )
    assert other.returncode == 1, "another process is kept out too"


def test_each_record_is_on_the_disk_before_its_verb_returns(
    store: JsonlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(path.stat().st_size), real(file)))
    sizes = []
    job = submitted(store)
    for act in (
        lambda: claimed(store),
        lambda: store.release(fence=store.get(job_id=job.id).fence),
    ):
        act()
        sizes.append(path.stat().st_size)
    assert synced[-2:] == sizes and len(synced) == 3


def test_an_unfinished_last_record_is_cut_off_and_everything_before_it_stays(
    store: JsonlStore, path: Path
) -> None:
    job = submitted(store)
    whole = path.stat().st_size
    claimed(store)
    data = path.read_bytes()
    store.close()
    for end in (whole + 1, whole + 70, len(data) - 1):
        path.write_bytes(data[:end])
        reopen = JsonlStore(path)
        assert reopen.get(job_id=job.id) == job
        assert path.stat().st_size == whole
        reopen.close()
    path.write_bytes(data + b"\0" * 100)
    store.__init__(path)  # type: ignore[misc]  # opened again
    assert store.get(job_id=job.id).state == "running"
    store.finish(fence=store.get(job_id=job.id).fence, state="done")
    assert reopened(store).get(job_id=job.id).state == "done"


@pytest.mark.parametrize("how", ["edit", "gap", "reorder", "first", "foreign"])
def test_any_other_damage_refuses_to_open(store: JsonlStore, path: Path, how: str) -> None:
    for number in range(3):
        submitted(store, number)
    store.close()
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = {
        "edit": [*lines[:2], lines[2].replace(b"acme", b"acmf"), lines[3]],
        "gap": [lines[0], *lines[2:]],
        "reorder": [lines[0], lines[2], lines[1], lines[3]],
        "first": lines[1:],
        "foreign": [b'{"a": 1}\n'],
    }[how]
    path.write_bytes(b"".join(damaged))
    with pytest.raises(StoreDamaged) as refusal:
        JsonlStore(path)
    assert refusal.value.error_code == "store_damaged"
    assert path.read_bytes() == b"".join(damaged), "nothing was repaired"
    path.write_bytes(b"".join(lines))
    store.__init__(path)  # type: ignore[misc]  # the lock was let go


def test_a_disk_that_refuses_a_record_stops_the_store_and_undoes_its_rows(
    store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = waiting(store)

    def full(*_ignored: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", full)
        with pytest.raises(Unavailable) as refusal:
            store.resume(job_id=job.id, reasons=["approval"], also=note_in_tx(job.id))
    assert refusal.value.error_code == "store_broken"
    assert length(kind="note", object_id=job.id) == 0
    assert store.get(job_id=job.id) == job
    with pytest.raises(Unavailable):
        submitted(store, 2)
    assert reopened(store).get(job_id=job.id) == job
    assert submitted(store, 2).state == "queued"


def test_rows_and_job_move_together_or_not_at_all(store: JsonlStore) -> None:
    job = waiting(store)
    with pytest.raises(Boom):
        store.resume(job_id=job.id, reasons=["approval"], also=note_in_tx(job.id, fail=True))
    with at_commit("_together", VANISHED), pytest.raises(CommitOutcomeUnknown):
        store.resume(job_id=job.id, reasons=["approval"], also=note_in_tx(job.id))
    assert store.get(job_id=job.id) == job == reopened(store).get(job_id=job.id)
    assert store.resume(job_id=job.id, reasons=["approval"], also=NOTHING)
    with at_commit("_together", LANDED), pytest.raises(CommitOutcomeUnknown):
        store.finish(fence=claimed(store).fence, state="done", also=note_in_tx(job.id))
    assert length(kind="note", object_id=job.id) == 1
    assert reopened(store).get(job_id=job.id).state == "done"


def test_rows_that_are_rolled_back_after_the_record_take_the_job_back(store: JsonlStore) -> None:
    def first_time_busy(calls: list[int]) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise Boom

    job, calls = waiting(store), list[int]()
    real = store._file.append

    def written_then_busy(record: dict[str, Any]) -> None:
        real(record)
        store._file.append = real  # type: ignore[method-assign]  # once
        raise OSError("the database went away")

    store._file.append = written_then_busy  # type: ignore[method-assign]  # once
    with pytest.raises(OSError, match="went away"):
        store.resume(job_id=job.id, reasons=["approval"], also=lambda: first_time_busy(calls))
    assert store.get(job_id=job.id) == job


def test_it_says_what_it_lacks(store: JsonlStore) -> None:
    port: RuntimeStateStore = store
    for missing in (REQUEUE_DELIVERY, ENSURE_REPLAY):
        with pytest.raises(Unavailable) as refusal:
            require(port, missing)
        assert refusal.value.error_code == "capability_missing"
    letter = dead_child()
    with pytest.raises(Unavailable) as refusal:
        replay.replay(dead_letter_id=letter.id, actor=ANN, store=port)
    assert refusal.value.error_code == "capability_missing"
    for attempt in (port.ensure_executor_replay, store.requeue_delivery_job_once):
        with pytest.raises(Unavailable):
            attempt()


def test_a_kernel_over_it_refuses_destinations_that_need_an_executor(store: JsonlStore) -> None:
    lives.open_account(delivery_data.ACCOUNT)
    delivery_data.make_destinations()

    async def start() -> None:
        kernel = Kernel(store=store)
        try:
            await kernel.initialize()
        finally:
            await kernel.close()

    with pytest.raises(Unavailable) as refusal:
        asyncio.run(start())
    assert refusal.value.error_code == "capability_missing" and "crm-relay" in str(refusal.value)
    Destination.objects.filter(channel="executor").update(active=False)
    asyncio.run(start())


def test_a_destination_that_needs_an_executor_is_refused_when_it_is_made(
    store: JsonlStore,
) -> None:
    lives.open_account(delivery_data.ACCOUNT)
    delivery_data.make_destinations()
    Destination.objects.filter(channel="executor").update(active=False)
    before = Destination.objects.count()
    new = {"account_id": delivery_data.ACCOUNT, "address": "crm", "events": ["job"], "actor": ANN}
    with pytest.raises(Unavailable, match="executors would get nothing") as refusal:
        destinations.create_destination(channel="executor", store=store, **new)
    assert refusal.value.error_code == "capability_missing"
    asleep = Destination.objects.get(id="crm-relay")
    change = {"destination_id": asleep.id, "seen_version": asleep.version, "actor": ANN}
    with pytest.raises(Unavailable, match="crm-relay"):
        destinations.change_destination(active=True, store=store, **change)
    assert not Destination.objects.filter(channel="executor", active=True).exists()
    assert Destination.objects.count() == before
    destinations.change_destination(address="other", store=store, **change)
    destinations.create_destination(channel="executor", destination_id="crm-2", **new)


def lived_long(store: JsonlStore, rounds: int = 6) -> tuple[str, str]:
    """A waiting job with its marker and one that was claimed again and again: outdated records."""
    job = waiting(store)
    asked = {"job_id": job.id, "marker": "apr_1.dec_1", "may_admit": lambda: "wait"}
    assert store.requeue_approved_job_once(**asked) is Admission.WAITS
    other = submitted(store, 2)
    for _ in range(rounds):
        store.release(fence=claimed(store).fence)
    return job.id, other.id


def test_an_opening_leaves_out_what_is_outdated_and_keeps_jobs_and_markers(
    store: JsonlStore, path: Path
) -> None:
    ids = lived_long(store)
    before, size = [store.get(job_id=one) for one in ids], path.stat().st_size
    assert reopened(store) and path.stat().st_size == size, "few are no reason"
    with override(job_file_outdated_count_max=3):
        reopened(store)
    assert len(path.read_bytes().splitlines()) == 1 + len(ids)
    assert [store.get(job_id=one) for one in ids] == before
    asked = {"job_id": ids[0], "marker": "apr_1.dec_1", "may_admit": lambda: "yes"}
    assert store.requeue_approved_job_once(**asked) is Admission.ALREADY
    done = claimed(store)
    store.finish(fence=done.fence, state="done")
    assert reopened(store).get(job_id=done.id).state == "done", "the chain goes on"
    with pytest.raises(Unavailable):
        JsonlStore(path)


@pytest.mark.parametrize("when", ["write", "replace"])
def test_a_rewrite_that_fails_or_dies_leaves_the_old_file_whole(
    store: JsonlStore, path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    ids = lived_long(store)
    before, data = [store.get(job_id=one) for one in ids], path.read_bytes()

    def full(*_ignored: Any) -> int:
        raise OSError(28, "No space left on device")

    with override(job_file_outdated_count_max=3), monkeypatch.context() as broken:
        broken.setattr(Path if when == "replace" else os, when, full)
        reopened(store)
    assert path.read_bytes() == data
    assert [store.get(job_id=one) for one in ids] == before
    assert submitted(store, 3).state == "queued"
    assert not Path(f"{path}.new").exists(), "half a file would keep a full disk full"
    with override(job_file_outdated_count_max=3):
        assert reopened(store).get(job_id=ids[1]) == before[1], "what a death left is written over"


def test_a_marker_outlives_the_process(store: JsonlStore) -> None:
    job = waiting(store)
    asked = {"job_id": job.id, "marker": "apr_1.dec_1", "may_admit": lambda: "yes"}
    assert store.requeue_approved_job_once(**asked) is Admission.ADMITTED
    assert reopened(store).requeue_approved_job_once(**asked) is Admission.ALREADY


def test_a_kernel_submits_claims_and_finishes_over_it(store: JsonlStore) -> None:
    now = clock.db_now()
    Account.objects.create(id="acme", name="Acme", created_at=now, updated_at=now)
    Route.objects.create(id="refunds", target="executor", created_at=now, updated_at=now)

    async def life() -> str:
        kernel = Kernel(store=store)
        await kernel.initialize()
        job, is_new = await kernel.submit_job(
            account_id="acme", request_id="r-1", route_id="refunds", input={"a": 1}, actor=CALLER
        )
        assert is_new
        in_tx = kernel.database.in_tx
        (held,) = await in_tx(store.claim, owner="ex_1", target="executor", limit=1)
        await in_tx(store.guard, fence=held.fence, act=NOTHING)
        await in_tx(store.finish, fence=held.fence, state="done", result_text='{"ok":1}')
        await kernel.tick()
        assert (await kernel.close()).drained
        return job.id

    job_id = asyncio.run(life())
    assert reopened(store).get(job_id=job_id).result_text == '{"ok":1}'
    assert not Job.objects.exists(), "no job is in the database"
