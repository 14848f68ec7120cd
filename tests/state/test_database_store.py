"""What only the database store promises, beside the conformance suite (D1, C5, C13, H3)."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from kernel import clock, schema
from kernel.audit import append_in_tx, length
from kernel.errors import KernelError, NotFound, Unavailable
from kernel.ids import new_id
from kernel.models import AuditRow, Job, JobMarkers, Pause
from kernel.state import Admission, DatabaseStore, RuntimeStateStore, require
from kernel.state.protocol import ENSURE_REPLAY, REQUEUE_APPROVED, REQUEUE_DELIVERY
from tests.state.place import NOTHING, OPERATOR, Boom, Place, claimed, submitted, waiting
from tests.usage.flow import Statements

STORE: RuntimeStateStore = DatabaseStore()
ROWS = 3000


def let_lease_end(job_id: str) -> None:
    Job.objects.filter(id=job_id).update(lease_expires_at=clock.db_now() - timedelta(seconds=1))


def set_pause(scope: str) -> None:
    Pause.objects.create(scope=scope, reason="test", paused_by="user:olga", paused_at=clock.now())


def acts_of(job_id: str) -> list[str]:
    rows = AuditRow.objects.filter(subject=f"job:{job_id}").order_by("sequence")
    return list(rows.values_list("action", flat=True))


def markers_of(job_id: str) -> list[str]:
    text = JobMarkers.objects.get(id=job_id).approval_continuation_keys
    return list(json.loads(text)) if text else []


def lift_pause(scope: str) -> None:
    Pause.objects.filter(scope=scope).delete()


@pytest.fixture
def place(kernel_db: None) -> Place:
    return Place(
        store=STORE,
        let_lease_end=let_lease_end,
        pause=set_pause,
        unpause=lift_pause,
        acts_of=acts_of,
        markers_of=markers_of,
    )


def test_a_heartbeat_that_changes_no_value_is_no_lost_lease(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may count changed rows, not found ones: twice within one tick of the clock."""
    submitted(STORE)
    job = claimed(STORE)
    now = clock.db_now()
    monkeypatch.setattr(clock, "db_now", lambda: now)
    for _ in range(3):
        assert STORE.heartbeat(fences=[job.fence]) == {job.id}
    same = Job.objects.filter(id=job.id)
    assert same.update(owner=same.get().owner) == 1, "found is counted on every engine"


# --- one transaction with rows outside the store ---------------------------------------------


def note_in_tx(job_id: str, *, fail: bool = False) -> Callable[[], None]:
    """An act that writes a row of its own, then fails if told to."""

    def act() -> None:
        append_in_tx(actor=OPERATOR, action="noted", kind="note", object_id=job_id)
        if fail:
            raise Boom

    return act


ENDINGS: dict[str, Callable[[Any, Callable[[], None]], Any]] = {
    "guard": lambda job, also: STORE.guard(fence=job.fence, act=also),
    "wait": lambda job, also: STORE.wait(fence=job.fence, reason="approval", also=also),
    "finish": lambda job, also: STORE.finish(fence=job.fence, state="done", also=also),
    "cancel": lambda job, also: STORE.cancel(job_id=job.id, actor=OPERATOR, reason="", also=also),
    "refuse": lambda job, also: STORE.refuse(job_id=job.id, code="x", reason="", also=also),
    "resume": lambda job, also: STORE.resume(job_id=job.id, reasons=["approval"], also=also),
}


@pytest.mark.parametrize("verb", ENDINGS)
def test_rows_outside_the_store_move_with_the_job_or_not_at_all(place: Place, verb: str) -> None:
    if verb in ("refuse", "resume"):
        job = waiting(STORE)
    else:
        submitted(STORE)
        job = claimed(STORE)
    with pytest.raises(Boom):
        ENDINGS[verb](job, note_in_tx(job.id, fail=True))
    assert STORE.get(job_id=job.id) == job
    assert length(kind="note", object_id=job.id) == 0
    ENDINGS[verb](job, note_in_tx(job.id))
    assert length(kind="note", object_id=job.id) == 1


# --- markers ---------------------------------------------------------------------------------


def test_no_ordinary_verb_names_a_marker_column(place: Place) -> None:
    statements = Statements()
    with connection.execute_wrapper(statements):
        job = waiting(STORE)
        STORE.resume(job_id=job.id, reasons=["approval"], also=NOTHING)
        held = claimed(STORE)
        STORE.heartbeat(fences=[held.fence])
        STORE.release(fence=held.fence)
        let_lease_end(claimed(STORE).id)
        STORE.reclaim(limit=5)
        STORE.finish(fence=claimed(STORE).fence, state="done")
    touching = statements.touching("bz_jobs")
    assert len(touching) > 10
    for column in ("approval_continuation_keys", "delivery_replay_keys"):
        assert not any(column in text for text in touching)


def test_damaged_markers_admit_nothing(place: Place) -> None:
    job = waiting(STORE)
    for text in ("[", '{"a":1}', '"apr.dec"'):
        JobMarkers.objects.filter(id=job.id).update(approval_continuation_keys=text)
        with pytest.raises(KernelError) as refusal:
            admit(job.id)
        assert refusal.value.error_code == "marker_damaged"
    assert STORE.get(job_id=job.id) == job


def admit(job_id: str) -> Admission:
    return DatabaseStore.requeue_approved_job_once(
        job_id=job_id, marker="apr_1.dec_1", may_admit=lambda: "yes"
    )


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a migration look as if it was never applied."""

    def forget(name: str) -> None:
        applied = MigrationRecorder(connection).applied_migrations()
        rest = {key: value for key, value in applied.items() if key != ("kernel", name)}
        assert len(rest) == len(applied) - 1
        monkeypatch.setattr(MigrationRecorder, "applied_migrations", lambda self: rest)
        monkeypatch.setattr(schema, "_found", set())

    return forget


def test_without_0066_admissions_are_unavailable_and_the_rest_works(
    place: Place, without: Callable[[str], None]
) -> None:
    job = waiting(STORE)
    without(schema.CONTINUATIONS)
    with pytest.raises(Unavailable) as refusal:
        admit(job.id)
    assert refusal.value.error_code == "migration_missing"
    assert refusal.value.details["migration"] == "0066_approval_continuations"
    assert STORE.get(job_id=job.id) == job
    submitted(STORE, 2)
    STORE.finish(fence=claimed(STORE).fence, state="done")


def test_without_0068_no_job_is_claimed(place: Place, without: Callable[[str], None]) -> None:
    job = submitted(STORE)
    without(schema.AGENT_JOBS)
    with pytest.raises(Unavailable):
        claimed(STORE)
    assert STORE.get(job_id=job.id) == job


def test_a_capability_that_a_store_lacks_is_unavailable_explicitly() -> None:
    bare = DatabaseStore()
    bare.capabilities = frozenset()
    for missing in (REQUEUE_APPROVED, REQUEUE_DELIVERY, ENSURE_REPLAY):
        require(STORE, missing)
        with pytest.raises(Unavailable) as refusal:
            require(bare, missing)
        assert refusal.value.error_code == "capability_missing"
        assert refusal.value.details["capability"] == missing


def test_an_outcome_of_any_text_is_recorded(place: Place) -> None:
    submitted(STORE)
    job = claimed(STORE)
    text = "ä\ud800\x00" + "x" * 10_000
    STORE.finish(fence=job.fence, state="failed", error_code="odd", error_text=text)
    found = STORE.get(job_id=job.id)
    assert found.error_text.startswith("ä?\x00x") and len(found.error_text) == 4000


def test_an_id_outside_the_alphabet_finds_no_job(place: Place) -> None:
    with pytest.raises((NotFound, KernelError)):
        STORE.get(job_id="ä")


# --- plans -----------------------------------------------------------------------------------


@pytest.fixture
def many_jobs(server_db: None) -> None:
    """Jobs in several states, most of them done, so that the plans are those of real tables."""
    start = clock.now() - timedelta(days=1)
    states = ["done"] * 16 + ["queued", "running"] * 2
    rows = []
    for number in range(ROWS):
        at = start + timedelta(seconds=number)
        rows.append(
            Job(
                id=new_id("job"),
                account_id=f"acct-{number % 5}",
                request_id=f"req-{number}",
                route_id="refunds",
                state=states[number % len(states)],
                lease_expires_at=at,
                due_at=at,
                created_at=at,
                updated_at=at,
            )
        )
    Job.objects.bulk_create(rows, batch_size=500)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE bz_jobs")
        cursor.fetchall()


class Candidates:
    """Keeps the SELECT that picks jobs, with its parameters."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Any]] = []

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, ctx: Any) -> Any:
        if sql.startswith("SELECT") and "bz_jobs" in sql and "LIMIT" in sql:
            self.found.append((sql, params))
        return execute(sql, params, many, ctx)


PICKS: dict[str, tuple[Callable[[], object], str]] = {
    "claim": (lambda: STORE.claim(owner="wrk_a", target="agent", limit=8), "bz_job_claim"),
    "reclaim": (lambda: STORE.reclaim(limit=50), "bz_job_lease"),
}


@pytest.mark.parametrize("verb", PICKS)
def test_candidates_are_picked_by_one_index_without_sorting(many_jobs: None, verb: str) -> None:
    query, index = PICKS[verb]
    candidates = Candidates()
    with connection.execute_wrapper(candidates):
        query()
    ((sql, params),) = candidates.found
    assert "FOR UPDATE SKIP LOCKED" in sql
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}", params)
        names = [column[0] for column in cursor.description]
        (row,) = cursor.fetchall()
    plan = dict(zip(names, row, strict=True))
    assert plan["key"] == index, plan
    assert "filesort" not in (plan["Extra"] or ""), plan
    assert "temporary" not in (plan["Extra"] or ""), plan
    assert int(plan["rows"]) < ROWS / 2, plan


def test_a_paused_backlog_is_not_read_at_every_claim(many_jobs: None) -> None:
    Job.objects.update(route_id="stopped")
    due = Job.objects.filter(state="queued", target="agent", due_at__lte=clock.now())
    keep = list(due.order_by("-due_at").values_list("id", flat=True)[:3])
    Job.objects.filter(id__in=keep).update(route_id="running")
    Pause.objects.create(
        scope="route:stopped", reason="maintenance", paused_by="olga", paused_at=clock.now()
    )
    with connection.cursor() as cursor:
        cursor.execute("FLUSH STATUS")
        claimed = STORE.claim(owner="wrk_a", target="agent", limit=8)
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        reads = sum(int(value) for _, value in cursor.fetchall())
    assert sorted(job.id for job in claimed) == sorted(keep)
    assert reads < 100, reads
