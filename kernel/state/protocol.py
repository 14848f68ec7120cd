"""The port of the runtime state store: required verbs, optional capabilities (C13, M1).

Every verb is one transaction of the store. Where rows outside the store must move together with a
job, the caller hands in `also`: it runs inside the verb's critical section, after its checks and
before its commit; what it raises undoes the verb. The database store runs it in the very same
transaction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeVar

from kernel.audit import Actor
from kernel.errors import Unavailable

R = TypeVar("R")

REQUEUE_APPROVED = "requeue_approved_job_once"
REQUEUE_DELIVERY = "requeue_delivery_job_once"
ENSURE_REPLAY = "ensure_executor_replay"
# Error code of a job that was parked because its runs could not go on.
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a caller asks for. (account_id, request_id) is its identity, as for model requests."""

    account_id: str
    request_id: str
    route_id: str
    target: str
    input_text: str
    parent_id: str = ""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job as the store knows it; times in UTC, `fence_token` counts claims."""

    id: str
    account_id: str
    request_id: str
    route_id: str
    target: str
    parent_id: str
    state: str
    waiting_reason: str
    input_text: str
    result_text: str
    error_code: str
    error_text: str
    attempts: int
    owner: str
    fence_token: int
    lease_expires_at: datetime | None
    due_at: datetime
    created_at: datetime
    finished_at: datetime | None
    updated_at: datetime

    @property
    def fence(self) -> "Fence":
        """The right to act for this job, valid while this claim lasts."""
        return Fence(self.id, self.owner, self.fence_token)


@dataclass(frozen=True, slots=True)
class Fence:
    """One claim of one job. A stale fence writes nothing (D1)."""

    job_id: str
    owner: str
    token: int


class Admission(StrEnum):
    """What became of a decision's or a replay's one admission (C5, C6, F5)."""

    ADMITTED = "admitted"  # queued just now, the marker is written
    ALREADY = "already"  # the marker was there: never a second time
    WAITS = "waits"  # the marker is written; other questions of the job are still open
    IN_FLIGHT = "in_flight"  # the job runs or is queued: left for later (C6)
    NOT_WAITING = "not_waiting"  # the job has ended or is parked: nothing to admit, for good
    REFUSED = "refused"  # `may_admit` said no, for good: consumed, void or expired


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a walk and where the next one starts ('' = the end)."""

    scanned: int
    moved: int
    parked: int
    cursor: str = ""
    job_ids: Sequence[str] = field(default_factory=tuple)


class RuntimeStateStore(Protocol):
    """Where jobs live. The database store is the default (kernel/state/database.py)."""

    capabilities: frozenset[str]

    def submit(self, *, job: NewJob, actor: Actor) -> tuple[JobRecord, bool]:
        """The job of this identity, and whether it was made just now: queued, audited (D1).

        Conflict `job_conflict` when the identity belongs to another route or input.
        """

    def get(self, *, job_id: str) -> JobRecord:
        """NotFound."""

    def find(self, *, account_id: str, request_id: str) -> JobRecord:
        """NotFound."""

    def claim(
        self, *, owner: str, target: str, limit: int, account_id: str = ""
    ) -> list[JobRecord]:
        """Take up to `limit` due jobs, oldest first, each under a fresh fence and lease (D1).

        Counts the attempt. Jobs of a paused route stay where they are; a global pause claims
        nothing (D4). `account_id` narrows the claim to one account (executors).
        """

    def heartbeat(self, *, fences: Sequence[Fence]) -> set[str]:
        """Renew the leases of the jobs still held; returns their ids. The others are lost."""

    def guard(self, *, fence: Fence, act: Callable[[], R]) -> R:
        """Run `act` while the job is locked, running and held by `fence`, in one transaction.

        LostRace `lost_lease` otherwise, and nothing is written.
        """

    def wait(self, *, fence: Fence, reason: str, also: Callable[[], None]) -> None:
        """running -> waiting, together with what it waits for (one transaction). LostRace."""

    def release(self, *, fence: Fence, retry_seconds: float = 0.0, interrupted: str = "") -> None:
        """running -> queued, due after `retry_seconds`; the attempt is not counted. LostRace.

        `interrupted` says why the run could not go on: the attempt counts, and after
        `worker_lost_max` in a row the job is parked with these words (code `interrupted`).
        """

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
        """running -> done, failed or refused. LostRace.

        Known answer for a lost acknowledgement: a job that this very fence has finished is fine.
        """

    def refuse(
        self, *, job_id: str, code: str, reason: str, also: Callable[[], None] | None = None
    ) -> bool:
        """waiting -> refused (C8). False when it is not waiting; `also` ran if it had ended.

        A job that may still run (queued, running, parked) is not touched (C6).
        """

    def resume(self, *, job_id: str, reasons: Sequence[str], also: Callable[[], None]) -> bool:
        """waiting for one of `reasons` (or parked, reason `worker_lost`) -> queued (D2, D3).

        False when it does not wait for that; `also` did not run then.
        """

    def cancel(
        self, *, job_id: str, actor: Actor, reason: str, also: Callable[[], None]
    ) -> JobRecord:
        """Not finished -> cancelled, audited; `also` voids its questions in the same transaction.

        A cancelled job stays so. Conflict `job_finished` when it has ended otherwise. NotFound.
        """

    def reclaim(self, *, cursor: str = "", limit: int) -> Page:
        """Running jobs whose lease ended go back to the queue, or are parked (D1).

        Parked with `worker_lost` after `worker_lost_max` attempts without an orderly end.
        """

    # --- optional: asked for through `capabilities` (C13, F8) ---------------------------------

    def requeue_approved_job_once(
        self, *, job_id: str, marker: str, may_admit: Callable[[], str]
    ) -> Admission:
        """Admit a waiting job once for one decision; the marker stays for good (C5).

        `may_admit()` is asked inside the critical section, after the marker: 'yes' admits, 'wait'
        writes the marker only (other questions are open), anything else refuses for good.
        """

    def requeue_delivery_job_once(
        self,
        *,
        job_id: str,
        marker: str,
        verify: Callable[[JobRecord], str],
        also: Callable[[], None] | None = None,
    ) -> Admission:
        """Queue an ended child job of a notification once per replay; the marker stays (F4, F5).

        `verify(job)` is asked inside the critical section, after the marker: it names the first
        binding that does not fit ('' = all fit). Failed, cancelled and parked jobs are admitted;
        they keep identities and input. `also` runs when admitted. Conflict `binding_mismatch`.
        """

    def ensure_executor_replay(self) -> None:
        """Unavailable when replays cannot reach executors now (F8)."""


def require(store: RuntimeStateStore, capability: str) -> None:
    """Unavailable, explicitly, where the store lacks a capability: there is no other way (C13)."""
    if capability not in store.capabilities:
        raise Unavailable(
            f"The state store lacks {capability}; what needs it is unavailable.",
            code="capability_missing",
            next_action="Use a state store that has it.",
            capability=capability,
        )
