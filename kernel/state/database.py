"""The state store in the database: one row per job, moved by compare-and-set (D1, C5).

Lock order: the job row first, then whatever `also` and `act` touch. They may run again with the
whole transaction under contention, so they do nothing but read and write rows.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db.models import QuerySet

from kernel import audit, clock, schema, sql
from kernel.conf import conf
from kernel.errors import NotFound, RetryTransaction
from kernel.ids import check_id, new_id
from kernel.models import Job, Pause
from kernel.runtime.wake import JOBS, wake_after_commit_in_tx
from kernel.state import notes, rows
from kernel.state.admissions import (
    ensure_executor_replay,
    requeue_approved_job_once,
    requeue_delivery_job_once,
)
from kernel.state.endings import tell_ends_in_tx
from kernel.state.pauses import GLOBAL, ROUTE_PREFIX
from kernel.state.protocol import (
    ENSURE_REPLAY,
    INTERRUPTED,
    REQUEUE_APPROVED,
    REQUEUE_DELIVERY,
    Fence,
    JobRecord,
    NewJob,
    Page,
)
from kernel.states import JOB, JobState, Waiting
from kernel.transactions import insert_new_in_tx, reading, requires_transaction, transaction

R = TypeVar("R")

WORKER_LOST = "worker_lost"
REASONS = frozenset({Waiting.APPROVAL, Waiting.MODEL_UNKNOWN, Waiting.CALL_UNCERTAIN})
MAY_RUN = frozenset({JobState.QUEUED, JobState.RUNNING, JobState.PARKED})
FINISHES = frozenset({JobState.DONE, JobState.FAILED, JobState.REFUSED})
UNOWNED: dict[str, Any] = {"owner": "", "lease_expires_at": None}
TAKE = (
    "UPDATE bz_jobs SET state = %s, owner = %s, lease_expires_at = %s, updated_at = %s,"
    " fence_token = fence_token + 1, attempts = attempts + 1 WHERE id IN ({marks}) AND state = %s"
)


@transaction
def submit(*, job: NewJob, actor: audit.Actor) -> tuple[JobRecord, bool]:
    """The job of this identity, and whether it was made just now: queued, audited (D1).

    Conflict `job_conflict` when the identity belongs to another route or input. A repeat that meets
    the first one's commit waits for it at the unique key and then finds it.
    """
    found = Job.objects.filter(account_id=job.account_id, request_id=job.request_id).first()
    if found is not None:
        if not rows.is_repeat_in_tx(found, job):
            raise notes.other_content(found)
        return rows.record(found), False
    now = clock.db_now()
    row = Job(
        id=new_id("job"),
        account_id=job.account_id,
        request_id=job.request_id,
        route_id=job.route_id,
        target=job.target,
        parent_id=job.parent_id,
        input_text=job.input_text,
        state=JobState.QUEUED,
        due_at=now,
        created_at=now,
        updated_at=now,
    )
    insert_new_in_tx(row)
    wake_after_commit_in_tx(what=JOBS)
    notes.note_submit_in_tx(row, actor=actor)
    return rows.record(row), True


@reading
def get(*, job_id: str) -> JobRecord:
    """One job. NotFound."""
    found = sql.rows(Job, {"id": job_id})
    if not found:
        raise rows.no_job(job_id)
    return rows.record(found[0])


@reading
def find(*, account_id: str, request_id: str) -> JobRecord:
    """The job of an identity. NotFound."""
    row = Job.objects.filter(account_id=account_id, request_id=request_id).first()
    if row is None:
        raise NotFound(f"no job with the request id {request_id}")
    return rows.record(row)


def claim(*, owner: str, target: str, limit: int, account_id: str = "") -> list[JobRecord]:
    """Take up to `limit` due jobs, oldest first, each under a fresh fence and lease (D1).

    Counts the attempt. Jobs of a paused route stay where they are; a global pause claims nothing
    (D4). `account_id` narrows the claim to one account. Unavailable without migration 0068.
    """
    schema.require(schema.AGENT_JOBS)
    check_id(owner, field="owner")
    return _claim(owner=owner, target=target, limit=limit, account_id=account_id)


@transaction
def _claim(*, owner: str, target: str, limit: int, account_id: str) -> list[JobRecord]:
    scopes = [scope for (scope,) in sql.values(Pause, ("scope",), {})]
    if GLOBAL in scopes or limit < 1:
        return []
    now = clock.db_now()
    where: dict[str, Any] = {"state": JobState.QUEUED, "target": target}
    if account_id:
        where["account_id"] = account_id
    if scopes:
        due = Job.objects.filter(**where, due_at__lte=now)
        where["id"] = _oldest_of_open_routes(due, scopes=scopes, limit=limit)
    # Ids only: they come from the index alone. Other claimers' candidates are skipped, not waited
    # for; the update decides.
    picked = sql.values(
        Job,
        ("id",),
        where,
        more="AND due_at <= %s ORDER BY due_at, id LIMIT %s",
        parameters=[now, limit],
        lock=sql.SKIP,
    )
    if not picked:
        return []
    ids = [job_id for (job_id,) in picked]
    lease = now + timedelta(seconds=conf.job_lease_seconds)
    taken = sql.execute_in_tx(
        TAKE.format(marks=sql.marks(len(ids))),
        [JobState.RUNNING, owner, lease, now, *ids, JobState.QUEUED],
    )
    if taken != len(ids):  # the candidates are locked; on a server without locks: pick again
        raise RetryTransaction("a candidate was taken meanwhile")
    by_id = {row.id: row for row in sql.rows(Job, {"id": ids})}
    return [rows.record(by_id[job_id]) for job_id in ids]


def _oldest_of_open_routes(due: QuerySet[Job], *, scopes: list[str], limit: int) -> list[str]:
    """Ids of the oldest due jobs whose route is not paused: one short walk along each route.

    To leave the paused ones out of one walk would read all of them, at every claim.
    """
    paused = {scope.removeprefix(ROUTE_PREFIX) for scope in scopes}
    names = Job.objects.order_by("route_id").values_list("route_id", flat=True)
    found: list[tuple[datetime, str]] = []
    route_id = names.first()
    while route_id is not None:  # one seek per route that ever had a job
        if route_id not in paused:
            oldest = due.filter(route_id=route_id).order_by("due_at", "id")
            found += oldest.values_list("due_at", "id")[:limit]
        route_id = names.filter(route_id__gt=route_id).first()
    return [job_id for _, job_id in sorted(found)[:limit]]


@transaction
def heartbeat(*, fences: Sequence[Fence]) -> set[str]:
    """Renew the leases of the jobs still held; returns their ids. The others are lost (D1)."""
    asked = {(fence.job_id, fence.owner, fence.token) for fence in fences}
    running = Job.objects.select_for_update().filter(
        id__in=[fence.job_id for fence in fences], state=JobState.RUNNING
    )
    held = {
        job_id
        for job_id, owner, token in running.order_by("id").values_list("id", "owner", "fence_token")
        if (job_id, owner, token) in asked
    }
    if held:
        lease = clock.db_now() + timedelta(seconds=conf.job_lease_seconds)
        Job.objects.filter(id__in=held, state=JobState.RUNNING).update(lease_expires_at=lease)
    return held


@transaction
def guard(*, fence: Fence, act: Callable[[], R]) -> R:
    """Run `act` while the job is locked, running and held by `fence`; returns what it returns (D1).

    LostRace `lost_lease` otherwise, and nothing is written.
    """
    rows.lock_held_in_tx(fence)
    return act()


@transaction
def wait(*, fence: Fence, reason: str, also: Callable[[], None]) -> None:
    """running -> waiting, together with what it waits for, one transaction (C1, D2, D3). LostRace.

    An orderly end: lost workers are counted anew.
    """
    if reason not in REASONS:
        raise ValueError(f"{reason} is nothing that a job waits for")
    rows.lock_held_in_tx(fence)
    also()
    rows.move_held_in_tx(
        fence, state=JobState.WAITING, waiting_reason=reason, attempts=0, **UNOWNED
    )


@transaction
def release(*, fence: Fence, retry_seconds: float = 0.0, interrupted: str = "") -> None:
    """running -> queued, due after `retry_seconds`; the attempt is not counted (D1). LostRace.

    With `interrupted` it counts, and the last of `worker_lost_max` in a row parks the job.
    """
    row = rows.lock_held_in_tx(fence)
    if interrupted and row.attempts >= conf.worker_lost_max:
        _park_in_tx(row, fence, why=interrupted)
        return
    attempts = row.attempts if interrupted else max(row.attempts - 1, 0)
    due = clock.db_now() + timedelta(seconds=retry_seconds)
    rows.move_held_in_tx(fence, state=JobState.QUEUED, due_at=due, attempts=attempts, **UNOWNED)


@requires_transaction
def _park_in_tx(row: Job, fence: Fence, *, why: str) -> None:
    text = rows.storable(why, chars_max=rows.ERROR_CHARS_MAX)
    told = {"error_code": INTERRUPTED, "error_text": text}
    rows.move_held_in_tx(fence, state=JobState.PARKED, **told, **UNOWNED)
    tell_ends_in_tx([row], state=JobState.PARKED, **told)


@transaction
def finish(
    *,
    fence: Fence,
    state: str,
    result_text: str = "",
    error_code: str = "",
    error_text: str = "",
    also: Callable[[], None] | None = None,
) -> None:
    """running -> done, failed or refused (D1). LostRace.

    After a lost acknowledgement the same call is fine: owner and token stay on a finished row, so
    that its own fence is known; nothing is written then, and `also` does not run.
    """
    if state not in FINISHES:
        raise ValueError(f"a job does not finish as {state}")
    found = sql.rows(Job, {"id": fence.job_id}, columns=rows.FENCED, lock=sql.WAIT)
    if not found or not rows.is_held_by(found[0], fence):
        raise rows.lost_lease(fence)
    row = found[0]
    if row.state in FINISHES:
        return
    if row.state != JobState.RUNNING:
        raise rows.lost_lease(fence)
    if also is not None:
        also()
    rows.move_held_in_tx(
        fence,
        state=state,
        result_text=rows.storable(result_text),
        error_code=error_code,
        error_text=rows.storable(error_text, chars_max=rows.ERROR_CHARS_MAX),
        lease_expires_at=None,
        finished_at=clock.db_now(),
    )
    tell_ends_in_tx([row], state=state, error_code=error_code, error_text=error_text)


@transaction
def refuse(*, job_id: str, code: str, reason: str, also: Callable[[], None] | None = None) -> bool:
    """waiting -> refused (C8). False when it is not waiting; `also` ran if it had ended.

    A job that may still run is not touched: what it asked and proposed is its run's to end, and a
    refused call that was ended here would let the run go on without it (C6). NotFound.
    """
    row = rows.lock_in_tx(job_id)
    is_waiting = row.state in JOB.moves_to(JobState.REFUSED, by="refuse")
    if not is_waiting and row.state in MAY_RUN:
        return False
    if also is not None:
        also()
    if not is_waiting:
        return False
    now = clock.db_now()
    rows.move_in_tx(
        row,
        state=JobState.REFUSED,
        waiting_reason="",
        error_code=code,
        error_text=rows.storable(reason, chars_max=rows.ERROR_CHARS_MAX),
        finished_at=now,
    )
    tell_ends_in_tx([row], state=JobState.REFUSED, error_code=code, error_text=reason)
    return True


@transaction
def resume(*, job_id: str, reasons: Sequence[str], also: Callable[[], None]) -> bool:
    """waiting for one of `reasons`, or parked (reason `worker_lost`) -> queued, due now (D2, D3).

    False when it does not wait for that; `also` did not run then. NotFound.
    """
    row = rows.lock_in_tx(job_id)
    waits_for = {JobState.WAITING: row.waiting_reason, JobState.PARKED: WORKER_LOST}.get(row.state)
    if waits_for not in reasons:
        return False
    also()
    rows.move_in_tx(row, **rows.queued_now(), attempts=0, error_code="", error_text="")
    return True


@transaction
def cancel(*, job_id: str, actor: audit.Actor, reason: str, also: Callable[[], None]) -> JobRecord:
    """Not finished -> cancelled, audited; `also` voids its questions in the same transaction (D1).

    A cancelled job stays so. Conflict `job_finished` when it has ended otherwise. NotFound.
    """
    row = rows.lock_in_tx(job_id)
    if row.state == JobState.CANCELLED:
        return rows.record(row)
    if row.state not in JOB.moves_to(JobState.CANCELLED):
        raise notes.finished_already(row)
    also()
    rows.move_in_tx(
        row, state=JobState.CANCELLED, waiting_reason="", finished_at=clock.db_now(), **UNOWNED
    )
    notes.note_cancel_in_tx(row, actor=actor, reason=reason)
    tell_ends_in_tx([row], state=JobState.CANCELLED, error_text=reason)
    return rows.record(Job.objects.get(id=job_id))


@transaction
def reclaim(*, cursor: str = "", limit: int) -> Page:
    """Running jobs whose lease ended go back to the queue, or are parked (D1).

    Parked with `worker_lost` after `worker_lost_max` attempts without an orderly end. What is moved
    leaves the set, so each page starts at its front: `cursor` only says that there may be more.
    """
    now = clock.db_now()
    ended = (
        Job.objects.select_for_update(skip_locked=True)
        .filter(state=JobState.RUNNING, lease_expires_at__lt=now)
        .order_by("lease_expires_at", "id")
        .values_list("id", "attempts")[:limit]
    )
    attempts = dict(ended)
    lost = Job.objects.filter(state=JobState.RUNNING, lease_expires_at__lt=now)
    parked = [job_id for job_id, count in attempts.items() if count >= conf.worker_lost_max]
    moved = [job_id for job_id, count in attempts.items() if count < conf.worker_lost_max]
    if moved:
        lost.filter(id__in=moved, state=JobState.RUNNING).update(**rows.queued_now(), **UNOWNED)
    if parked:
        why = f"It lost its worker {conf.worker_lost_max} times in a row."
        lost.filter(id__in=parked, state=JobState.RUNNING).update(
            state=JobState.PARKED,
            error_code=WORKER_LOST,
            error_text=why,
            updated_at=now,
            **UNOWNED,
        )
        ended_jobs = list(Job.objects.filter(id__in=parked).defer("input_text", "result_text"))
        tell_ends_in_tx(ended_jobs, state=JobState.PARKED, error_code=WORKER_LOST, error_text=why)
    more = list(attempts)[-1] if len(attempts) == limit else ""
    return Page(len(attempts), len(moved), len(parked), cursor=more, job_ids=tuple(moved))


class DatabaseStore:
    """The default RuntimeStateStore: jobs in `bz_jobs`, every verb one transaction (M1)."""

    capabilities: frozenset[str] = frozenset({REQUEUE_APPROVED, REQUEUE_DELIVERY, ENSURE_REPLAY})

    submit = staticmethod(submit)
    get = staticmethod(get)
    find = staticmethod(find)
    claim = staticmethod(claim)
    heartbeat = staticmethod(heartbeat)
    guard = staticmethod(guard)
    wait = staticmethod(wait)
    release = staticmethod(release)
    finish = staticmethod(finish)
    refuse = staticmethod(refuse)
    resume = staticmethod(resume)
    cancel = staticmethod(cancel)
    reclaim = staticmethod(reclaim)
    requeue_approved_job_once = staticmethod(requeue_approved_job_once)
    requeue_delivery_job_once = staticmethod(requeue_delivery_job_once)
    ensure_executor_replay = staticmethod(ensure_executor_replay)
