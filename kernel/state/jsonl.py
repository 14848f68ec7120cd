"""The state store in a JSONL file: one process, one record per verb, jobs in memory (M1, D1).

What a verb writes is one record with the new form of each job it moved, so it is whole or not
there. `also` and the audit write rows of the database: they run first, in a transaction, and the
record is written right before its commit. What they raise undoes both. A process that dies between
the two leaves the job moved and the rows not: the window the database store does not have.

It lacks the replay of executors' notifications: their child jobs are born in the database. At an
opening, outdated records are left out. Lock order: the store, then rows.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from kernel import audit, clock
from kernel.conf import conf
from kernel.errors import CommitOutcomeUnknown, NotFound
from kernel.state import notes, rows
from kernel.state.database import FINISHES, MAY_RUN, REASONS, UNOWNED, WORKER_LOST
from kernel.state.endings import tell_ends_in_tx
from kernel.state.job_records import fresh, moved, parsed, plain, queued, whole
from kernel.state.journal_file import JournalFile
from kernel.state.pauses import GLOBAL, ROUTE_PREFIX, paused_scopes
from kernel.state.protocol import (
    ENSURE_REPLAY,
    INTERRUPTED,
    REQUEUE_APPROVED,
    REQUEUE_DELIVERY,
    Admission,
    Fence,
    JobRecord,
    NewJob,
    Page,
    require,
)
from kernel.states import JOB, JobState, Waiting
from kernel.transactions import transaction

R = TypeVar("R")
HEAD = {"store": "bailing-jobs", "version": 1}
IN_FLIGHT = frozenset({JobState.QUEUED, JobState.RUNNING})


@transaction
def _together(*, block: Callable[[], R]) -> R:
    return block()


class JsonlStore:
    """A RuntimeStateStore in one file. Its process is the only one that claims and reads jobs."""

    capabilities: frozenset[str] = frozenset({REQUEUE_APPROVED})

    def __init__(self, path: str | Path) -> None:
        """Open and read the file. Unavailable `store_locked`; StoreDamaged."""
        self._lock = threading.RLock()
        self._jobs: dict[str, JobRecord] = {}
        self._by_identity: dict[tuple[str, str], str] = {}
        self._live: set[str] = set()  # queued or running
        self._markers: dict[str, list[str]] = {}
        self._file = JournalFile(Path(path), HEAD)
        try:
            self._load()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Let go of the file; the store is not usable afterwards."""
        with self._lock:
            self._file.close()

    # --- the required verbs -----------------------------------------------------------------------

    def submit(self, *, job: NewJob, actor: audit.Actor) -> tuple[JobRecord, bool]:
        """See RuntimeStateStore."""
        with self._lock:
            found = self._of_identity(job.account_id, job.request_id)
            if found is not None:
                if (found.route_id, found.input_text) != (job.route_id, job.input_text):
                    raise notes.other_content(found)
                return found, False
            row = fresh(job)
            self._commit([row], lambda: notes.note_submit_in_tx(row, actor=actor))
            return row, True

    def get(self, *, job_id: str) -> JobRecord:
        """NotFound."""
        with self._lock:
            found = self._jobs.get(job_id)
        if found is None:
            raise rows.no_job(job_id)
        return found

    def find(self, *, account_id: str, request_id: str) -> JobRecord:
        """NotFound."""
        with self._lock:
            found = self._of_identity(account_id, request_id)
        if found is None:
            raise NotFound(f"no job with the request id {request_id}")
        return found

    def claim(
        self, *, owner: str, target: str, limit: int, account_id: str = ""
    ) -> list[JobRecord]:
        """See RuntimeStateStore. Unavailable without migration 0068."""
        scopes = paused_scopes()
        if GLOBAL in scopes or limit < 1:
            return []
        now = clock.now()
        with self._lock:
            due = [
                job
                for job in map(self._jobs.__getitem__, self._live)
                if job.state == JobState.QUEUED
                and job.target == target
                and job.due_at <= now
                and account_id in ("", job.account_id)
                and f"{ROUTE_PREFIX}{job.route_id}" not in scopes
            ]
            due.sort(key=lambda job: (job.due_at, job.id))
            taken = [
                replace(
                    job,
                    state=JobState.RUNNING,
                    owner=owner,
                    fence_token=job.fence_token + 1,
                    attempts=job.attempts + 1,
                    lease_expires_at=now + timedelta(seconds=conf.job_lease_seconds),
                    updated_at=now,
                )
                for job in due[:limit]
            ]
            self._commit(taken)
            return taken

    def heartbeat(self, *, fences: Sequence[Fence]) -> set[str]:
        """See RuntimeStateStore."""
        lease = clock.now() + timedelta(seconds=conf.job_lease_seconds)
        with self._lock:
            held = [self._jobs[each.job_id] for each in fences if self._is_held(each)]
            self._commit([replace(job, lease_expires_at=lease) for job in held])
            return {job.id for job in held}

    def guard(self, *, fence: Fence, act: Callable[[], R]) -> R:
        """See RuntimeStateStore."""
        with self._lock:
            self._held(fence)
            return _together(block=act)

    def wait(self, *, fence: Fence, reason: str, also: Callable[[], None]) -> None:
        """See RuntimeStateStore. A death before the rows' commit leaves it waiting for nothing."""
        if reason not in REASONS:
            raise ValueError(f"{reason} is nothing that a job waits for")
        with self._lock:
            job = self._held(fence)
            to = {"state": JobState.WAITING, "waiting_reason": reason, "attempts": 0}
            self._commit([moved(job, **to, **UNOWNED)], also)

    def release(self, *, fence: Fence, retry_seconds: float = 0.0, interrupted: str = "") -> None:
        """See RuntimeStateStore."""
        with self._lock:
            job = self._held(fence)
            due = clock.now() + timedelta(seconds=retry_seconds)
            left = job.attempts if interrupted else max(job.attempts - 1, 0)
            row = moved(job, state=JobState.QUEUED, due_at=due, attempts=left, **UNOWNED)
            if parks := bool(interrupted) and left >= conf.worker_lost_max:
                why = {"error_code": INTERRUPTED, "error_text": interrupted}
                row = moved(job, state=JobState.PARKED, **why, **UNOWNED)
            self._commit([row], ends=[row] if parks else [])

    def finish(
        self,
        *,
        fence: Fence,
        state: str,
        result_text: str = "",
        error_code: str = "",
        error_text: str = "",
        also: Callable[[], None] | None = None,
    ) -> None:
        """See RuntimeStateStore."""
        if state not in FINISHES:
            raise ValueError(f"a job does not finish as {state}")
        with self._lock:
            found = self._jobs.get(fence.job_id)
            if found is not None and found.state in FINISHES and found.fence == fence:
                return
            row = moved(
                self._held(fence),
                state=state,
                result_text=rows.storable(result_text),
                error_code=error_code,
                error_text=rows.storable(error_text, chars_max=rows.ERROR_CHARS_MAX),
                lease_expires_at=None,
                finished_at=clock.now(),
            )
            self._commit([row], also, ends=[row])

    def refuse(
        self, *, job_id: str, code: str, reason: str, also: Callable[[], None] | None = None
    ) -> bool:
        """See RuntimeStateStore."""
        with self._lock:
            job = self.get(job_id=job_id)
            if job.state not in JOB.moves_to(JobState.REFUSED, by="refuse"):
                if job.state not in MAY_RUN:
                    self._commit([], also)
                return False
            row = moved(
                job,
                state=JobState.REFUSED,
                waiting_reason="",
                error_code=code,
                error_text=rows.storable(reason, chars_max=rows.ERROR_CHARS_MAX),
                finished_at=clock.now(),
            )
            self._commit([row], also, ends=[row])
            return True

    def resume(self, *, job_id: str, reasons: Sequence[str], also: Callable[[], None]) -> bool:
        """See RuntimeStateStore."""
        with self._lock:
            job = self.get(job_id=job_id)
            waits = {JobState.WAITING: job.waiting_reason, JobState.PARKED: WORKER_LOST}
            if waits.get(job.state) not in reasons:
                return False
            self._commit([queued(job, attempts=0, error_code="", error_text="")], also)
            return True

    def cancel(
        self, *, job_id: str, actor: audit.Actor, reason: str, also: Callable[[], None]
    ) -> JobRecord:
        """See RuntimeStateStore."""
        with self._lock:
            job = self.get(job_id=job_id)
            if job.state == JobState.CANCELLED:
                return job
            if job.state not in JOB.moves_to(JobState.CANCELLED):
                raise notes.finished_already(job)
            row = moved(
                job,
                state=JobState.CANCELLED,
                waiting_reason="",
                finished_at=clock.now(),
                **UNOWNED,
            )

            def act_in_tx() -> None:
                also()
                notes.note_cancel_in_tx(job, actor=actor, reason=reason)

            self._commit([row], act_in_tx, ends=[replace(row, error_text=reason)])
            return row

    def reclaim(self, *, cursor: str = "", limit: int) -> Page:
        """See RuntimeStateStore."""
        now = clock.now()
        with self._lock:
            lost = [
                job
                for job in map(self._jobs.__getitem__, self._live)
                if job.state == JobState.RUNNING
                and job.lease_expires_at is not None
                and job.lease_expires_at < now
            ]
            lost.sort(key=lambda job: (job.lease_expires_at, job.id))
            page = lost[:limit]
            back = [job for job in page if job.attempts < conf.worker_lost_max]
            why = f"It lost its worker {conf.worker_lost_max} times in a row."
            parked = [
                moved(job, state=JobState.PARKED, error_code=WORKER_LOST, error_text=why, **UNOWNED)
                for job in page
                if job.attempts >= conf.worker_lost_max
            ]
            self._commit([*(queued(job, **UNOWNED) for job in back), *parked], ends=parked)
            more, ids = page[-1].id if len(page) == limit else "", tuple(job.id for job in back)
            return Page(len(page), len(back), len(parked), cursor=more, job_ids=ids)

    # --- optional ---------------------------------------------------------------------------------

    def requeue_approved_job_once(
        self, *, job_id: str, marker: str, may_admit: Callable[[], str]
    ) -> Admission:
        """See RuntimeStateStore. Marker and move are one record; `may_admit` only reads."""
        with self._lock:
            job, markers = self.get(job_id=job_id), self._markers.get(job_id, [])
            if marker in markers:
                return Admission.ALREADY
            if job.state in IN_FLIGHT:
                return Admission.IN_FLIGHT
            if job.state != JobState.WAITING:
                return Admission.NOT_WAITING
            if job.waiting_reason != Waiting.APPROVAL:
                return Admission.IN_FLIGHT
            verdict = _together(block=may_admit)
            if verdict not in ("yes", "wait"):
                return Admission.REFUSED
            self._commit(
                [queued(job)] if verdict == "yes" else [], markers={job_id: [*markers, marker]}
            )
            return Admission.ADMITTED if verdict == "yes" else Admission.WAITS

    def ensure_executor_replay(self) -> None:
        """Unavailable: the children of notifications are jobs of the database (F8)."""
        require(self, ENSURE_REPLAY)

    def requeue_delivery_job_once(self, **_ignored: Any) -> Admission:
        """Unavailable, as `ensure_executor_replay`."""
        require(self, REQUEUE_DELIVERY)
        raise AssertionError(REQUEUE_DELIVERY)

    # --- the file ---------------------------------------------------------------------------------

    def _commit(
        self,
        jobs: Sequence[JobRecord],
        also: Callable[[], None] | None = None,
        *,
        markers: dict[str, list[str]] | None = None,
        ends: Sequence[JobRecord] = (),
    ) -> None:
        """Write the jobs as one record, together with rows: `also`, and the news of ends."""
        record = {"jobs": [plain(job) for job in jobs], "markers": markers or {}}
        before = {"jobs": [plain(self._jobs[job.id]) for job in jobs if job.id in self._jobs]}
        is_written = False

        def block() -> None:  # may run again under contention: the record is written once
            nonlocal is_written
            if also is not None:
                also()
            for job in ends:
                tell_ends_in_tx(
                    [job], state=job.state, error_code=job.error_code, error_text=job.error_text
                )
            if not is_written and (jobs or markers):
                self._file.append(record)
                is_written = True

        try:
            if also is None and not ends:
                if jobs or markers:
                    self._file.append(record)
            else:
                _together(block=block)
        except CommitOutcomeUnknown:
            if is_written:
                self._apply(jobs, markers)  # the file has it
            raise
        except BaseException:
            if is_written:  # the rows are rolled back: so is the job
                gone = [job.id for job in jobs if job.id not in self._jobs]
                self._file.append({**before, "markers": {}, "gone": gone})
            raise
        self._apply(jobs, markers)

    def _apply(
        self,
        jobs: Iterable[JobRecord],
        markers: dict[str, list[str]] | None,
        gone: Iterable[str] = (),
    ) -> None:
        for job in jobs:
            self._jobs[job.id] = job
            self._by_identity[job.account_id, job.request_id] = job.id
            (self._live.add if job.state in IN_FLIGHT else self._live.discard)(job.id)
        for job_id in gone:
            job = self._jobs.pop(job_id)
            self._live.discard(job_id)
            del self._by_identity[job.account_id, job.request_id]
        self._markers.update(markers or {})

    def _load(self) -> None:
        count = 0
        for each in self._file.records():
            jobs = [parsed(one) for one in each["jobs"]]
            self._apply(jobs, each["markers"], each.get("gone", ()))
            count += 1
        if count - len(self._jobs) >= conf.job_file_outdated_count_max:
            self._file.rewrite(whole(job, self._markers) for job in self._jobs.values())

    def _of_identity(self, account_id: str, request_id: str) -> JobRecord | None:
        job_id = self._by_identity.get((account_id, request_id))
        return self._jobs[job_id] if job_id else None

    def _is_held(self, fence: Fence) -> bool:
        job = self._jobs.get(fence.job_id)
        return job is not None and job.state == JobState.RUNNING and job.fence == fence

    def _held(self, fence: Fence) -> JobRecord:
        if not self._is_held(fence):
            raise rows.lost_lease(fence)
        return self._jobs[fence.job_id]
