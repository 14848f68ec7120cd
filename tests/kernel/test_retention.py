"""Retention: contents go in bounded pages; nothing is admitted or charged twice (A17, C5, F5)."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from kernel import audit, clock, retention, schema
from kernel.audit.export import PATH_VARIABLE
from kernel.conf import SETTINGS, override
from kernel.delivery import replay
from kernel.errors import Conflict
from kernel.ids import new_id
from kernel.invariants import check_all
from kernel.kernel import Kernel
from kernel.models import (
    AuditRow,
    DeadLetter,
    DeliveryAttempt,
    Export,
    ExportChunk,
    Job,
    JobMarkers,
    JobPurge,
    Notification,
    Operation,
    PassStatus,
)
from kernel.runtime.maintenance import PageReport
from tests.delivery.letters import ANN, STORE
from tests.kernel.test_delivery_invariants import _children, _natives
from tests.state.place import CALLER, claimed, new_job, submitted, waiting
from tests.support import delivery_data, lives

pytestmark = pytest.mark.usefixtures("kernel_db")

DAYS = {policy.setting: 0 for policy in retention.POLICIES}


@pytest.fixture
def at_once(kernel_db: None) -> Iterator[None]:
    """Everything that has ended is old enough."""
    with override(**DAYS):
        yield


@pytest.fixture
def world(kernel_db: None) -> dict[str, str]:
    """A notification of each fate by name, with its dead letter (`_letter`) and job (`_job`)."""
    lives.open_account(delivery_data.ACCOUNT, cap_nano=None)
    delivery_data.make_destinations()
    return _natives() | _children()


def purged(page: Callable[..., PageReport], *, limit: int = 3) -> int:
    """How much a pass removes, page by page."""
    total, cursor = 0, None
    while True:
        report = page(cursor=cursor, limit=limit)
        assert report.scanned <= limit
        total, cursor = total + report.settled, report.cursor
        if cursor is None:
            return total


def purge_all() -> dict[str, int]:
    return {policy.kind: purged(policy.run) for policy in retention.POLICIES}


def test_an_ended_job_loses_input_and_result_and_keeps_its_identity(at_once: None) -> None:
    job = submitted(STORE)
    STORE.finish(fence=claimed(STORE).fence, state="done", result_text='{"ok":1}')
    held, waits = submitted(STORE, 2), waiting(STORE, 3)
    assert purged(retention.purge_jobs) == 1
    found = STORE.get(job_id=job.id)
    assert (found.input_text, found.result_text, found.state) == ("", "", "done")
    assert STORE.get(job_id=held.id).input_text == held.input_text
    assert STORE.get(job_id=waits.id) == waits
    assert STORE.submit(job=new_job(), actor=CALLER) == (found, False), "a repeat finds its job"
    for other in ({"input_text": "{}"}, {"route_id": "other"}):
        with pytest.raises(Conflict) as refusal:
            STORE.submit(job=new_job(**other), actor=CALLER)
        assert refusal.value.error_code == "job_conflict"
    assert Job.objects.count() == 3
    assert purged(retention.purge_jobs) == 0


def test_contents_are_hashed_outside_and_emptied_by_short_transactions(at_once: None) -> None:
    ended = 2 * retention.CONTENTS_AT_ONCE + 1
    for number in range(ended):
        submitted(STORE, number)
        STORE.finish(fence=claimed(STORE).fence, state="done")
    reads: list[bool] = []
    updates: list[str] = []

    def listen(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("SELECT") and "input_text" in sql:
            reads.append(connection.in_atomic_block)
        if sql.startswith("UPDATE") and "input_sha256" in sql:
            updates.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(listen):
        assert retention.purge_jobs(limit=50).settled == ended
    assert reads == [False] * 3, "one read per part, none under a lock"
    assert len(updates) == ended
    row = JobPurge.objects.first()
    assert row is not None and row.input_sha256 == retention.sha256_of(new_job().input_text)


def test_a_job_that_ended_again_meanwhile_keeps_its_input(at_once: None) -> None:
    job = submitted(STORE)
    STORE.finish(fence=claimed(STORE).fence, state="done")
    first_end = Job.objects.get(id=job.id).finished_at
    part = [(first_end - timedelta(seconds=1), job.id, "done")]
    assert retention._empty_jobs(ended=part, digests={job.id: "0" * 64}) == 0
    assert Job.objects.get(id=job.id).input_text == job.input_text
    part = [(first_end, job.id, "done")]
    assert retention._empty_jobs(ended=part, digests={job.id: "0" * 64}) == 1
    assert retention._empty_jobs(ended=part, digests={job.id: "0" * 64}) == 0


def test_what_is_younger_than_its_retention_stays(world: dict[str, str]) -> None:
    assert purge_all() == dict.fromkeys(purge_all(), 0)
    old = clock.db_now() - timedelta(days=89, hours=23)
    DeadLetter.objects.exclude(resolved_at=None).update(resolved_at=old)
    assert purged(retention.purge_dead_letters) == 0
    older = clock.db_now() - timedelta(days=90, seconds=1)
    DeadLetter.objects.exclude(resolved_at=None).update(resolved_at=older)
    assert purged(retention.purge_dead_letters) > 0


def test_markers_of_decisions_outlive_the_content(at_once: None) -> None:
    job = waiting(STORE)
    asked: dict[str, Any] = {"marker": "apr_1.dec_1", "may_admit": lambda: "yes"}
    STORE.requeue_approved_job_once(job_id=job.id, **asked)
    STORE.finish(fence=claimed(STORE).fence, state="failed", error_code="x")
    assert purged(retention.purge_jobs) == 1
    assert JobMarkers.objects.get(id=job.id).approval_continuation_keys == '["apr_1.dec_1"]'
    assert STORE.requeue_approved_job_once(job_id=job.id, **asked) == "already"


def test_what_may_still_be_replayed_stays_whole_and_is_replayed(
    at_once: None, world: dict[str, str]
) -> None:
    counts = purge_all()
    letters = {row.id: row for row in DeadLetter.objects.all()}
    for name in ("dead", "aside"):
        letter = letters[world[f"{name}_letter"]]
        assert bytes(letter.content), f"the {name} one may be sent again"
        attempts = DeliveryAttempt.objects.filter(notification_id=world[name])
        assert attempts.count() == Notification.objects.get(id=world[name]).attempts
    assert bytes(letters[world["replayed_letter"]].content) == b""
    assert not DeliveryAttempt.objects.filter(notification_id=world["replayed"]).exists()
    twice = Job.objects.get(id=world["child_twice_job"])
    assert twice.state == "failed" and twice.input_text, "its second dead letter is open"
    assert counts["dead_letters"] == DeadLetter.objects.filter(state="resolved").count()
    again = DeadLetter.objects.get(notification_id=world["child_twice"], state="open")
    told = replay.replay(dead_letter_id=again.id, actor=ANN, store=STORE)
    assert told.state == "queued"
    assert Job.objects.get(id=twice.id).input_text == twice.input_text


def test_a_purged_dead_letter_is_never_admitted_again(at_once: None, world: dict[str, str]) -> None:
    purge_all()
    before = Notification.objects.count(), Job.objects.filter(state="queued").count()
    for letter in DeadLetter.objects.filter(state="resolved"):
        told = replay.replay(dead_letter_id=letter.id, actor=ANN, store=STORE)
        assert told.state != "queued"
    assert before == (Notification.objects.count(), Job.objects.filter(state="queued").count())


def test_every_invariant_holds_and_ledger_and_audit_keep_every_row(
    at_once: None, world: dict[str, str]
) -> None:
    acts = AuditRow.objects.count()
    counts = purge_all()
    assert min(counts["attempts"], counts["dead_letters"]) > 0
    assert AuditRow.objects.count() == acts
    assert list(audit.verify()) == []
    assert [report for report in check_all() if report.offenders] == []


def test_an_export_is_purged_in_pieces_and_its_digest_stays(at_once: None) -> None:
    old = clock.db_now() - timedelta(days=1)
    for name, state in (("op_1", "done"), ("op_2", "running"), ("op_3", "cancelled")):
        Operation.objects.create(
            id=name, kind="export_audit", state=state, created_at=old, updated_at=old
        )
        Export.objects.create(operation_id=name, format="csv", sha256="a" * 64, created_at=old)
        ExportChunk.objects.bulk_create(
            ExportChunk(operation_id=name, sequence=number, data=b"x") for number in range(7)
        )
    assert purged(retention.purge_exports) == 2
    assert set(ExportChunk.objects.values_list("operation_id", flat=True)) == {"op_2"}
    assert Export.objects.get(operation_id="op_1").sha256 == "a" * 64
    assert Export.objects.get(operation_id="op_2").purged_at is None


def test_plans_that_nobody_starts_hide_no_export_that_ended(at_once: None) -> None:
    for number, state in enumerate(("planned", "planned", "planned", "done")):
        at = clock.db_now() - timedelta(days=9 - number)
        name = f"op_{number}"
        Operation.objects.create(
            id=name, kind="export_audit", state=state, created_at=at, updated_at=at
        )
        Export.objects.create(operation_id=name, format="csv", created_at=at)
    assert purged(retention.purge_exports, limit=2) == 1
    assert Export.objects.get(operation_id="op_3").purged_at is not None


def test_the_policies_name_settings_in_days_and_say_what_they_removed(at_once: None) -> None:
    for policy in retention.POLICIES:
        assert policy.setting in SETTINGS and policy.setting.endswith("_days")
    for number in range(4):
        submitted(STORE, number)
        STORE.finish(fence=claimed(STORE).fence, state="done")
    jobs = next(each for each in retention.POLICIES if each.kind == "jobs")
    assert purged(jobs.run, limit=3) == 4
    status = retention.statuses()["jobs"]
    assert (status.last_count, status.total_count) == (4, 4)
    submitted(STORE, 9)
    STORE.finish(fence=claimed(STORE).fence, state="done")
    purged(jobs.run)
    status = retention.statuses()["jobs"]
    assert (status.last_count, status.total_count) == (1, 5)


def test_without_0071_only_result_bodies_are_purged(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submitted(STORE)
    STORE.finish(fence=claimed(STORE).fence, state="done")
    applied = MigrationRecorder(connection).applied_migrations()
    rest = {key: row for key, row in applied.items() if key[1] != schema.RETENTION}
    monkeypatch.setattr(MigrationRecorder, "applied_migrations", lambda self: rest)
    monkeypatch.setattr(schema, "_found", set())
    assert set(purge_all().values()) == {0}
    assert retention.statuses() == {}
    assert STORE.get(job_id=job.id).input_text
    assert STORE.submit(job=new_job(), actor=CALLER)[1] is False


def test_the_kernel_runs_every_purge_and_the_copy_as_passes(
    at_once: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = submitted(STORE)
    STORE.finish(fence=claimed(STORE).fence, state="done")
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "audit.jsonl"))

    async def life() -> None:
        kernel = Kernel()
        await kernel.initialize()
        for one in kernel.passes:
            if one.name.startswith("purge") or one.name == "audit_copy":
                await kernel.run_pass(one.name)
        assert (await kernel.close()).drained

    with override(audit_copy_lag_seconds=0):
        asyncio.run(life())
    assert JobPurge.objects.get(id=job.id).purged_at is not None
    copied = (tmp_path / "audit.jsonl").read_bytes().splitlines()
    assert len(copied) == AuditRow.objects.count() > 0
    names = set(PassStatus.objects.values_list("name", flat=True))
    assert names == {*map(retention.pass_name, retention.POLICIES), "audit_copy"}


# --- plans ------------------------------------------------------------------------------------


def test_candidates_are_found_by_the_index_of_what_is_not_purged(server_db: None) -> None:
    now = clock.db_now()
    Job.objects.bulk_create(
        Job(
            id=new_id("job"),
            account_id="acme",
            request_id=f"r-{number}",
            state="done" if number % 4 else "queued",
            input_text="{}",
            due_at=now,
            created_at=now,
            updated_at=now,
            finished_at=now if number % 4 else None,
        )
        for number in range(2000)
    )
    with override(**DAYS):
        purged(retention.purge_jobs, limit=500)
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE TABLE bz_jobs")
            cursor.fetchall()
            cursor.execute("FLUSH STATUS")
            assert retention.purge_jobs(limit=500).scanned == 0
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            reads = sum(int(value) for _, value in cursor.fetchall())
    assert reads < 50, reads
