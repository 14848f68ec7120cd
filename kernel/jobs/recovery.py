"""Recovery of jobs: lost workers, and jobs whose unknown step was resolved meanwhile (D1-D3)."""

import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.db import DatabaseError

from kernel import schema
from kernel.errors import KernelError, LostRace, Unavailable
from kernel.jobs import steps
from kernel.jobs.resolution import resume_resolved
from kernel.models import Job
from kernel.runtime.maintenance import PageReport
from kernel.state import RuntimeStateStore
from kernel.states import JobState, Waiting
from kernel.transactions import LockWaits, reading, short_lock_waits

log = logging.getLogger(__name__)

# Waiting jobs looked at per run: most of them wait for people, and nothing is owed to them here.
LOOKS_PER_ROW = 10
Place = tuple[datetime, str]


class _StillUnknown(Exception):
    """Undoes a resume: a model step of the job is still unknown."""


def recovery_page(*, store: RuntimeStateStore) -> Callable[..., PageReport]:
    """A page of the job recovery pass: first reclaims, then resumes what was resolved.

    Jobs whose lease ended go back to the queue or are parked (D1). Of the waiting jobs a bounded
    number is looked at per run, in turn; who waits for an outcome that an operator has resolved, or
    that came late, goes on (D2, D3). Without migration 0068 there is nothing to do.
    """
    place: list[Place | None] = [None]

    def page(*, cursor: Any = None, limit: int) -> PageReport:
        try:
            schema.require(schema.AGENT_JOBS)
        except Unavailable:
            return PageReport()
        lost = store.reclaim(cursor=cursor or "", limit=limit)
        if lost.cursor:
            return PageReport(lost.scanned, lost.moved, lost.parked, cursor=lost.cursor)
        rows = _waiting(after=place[0], limit=limit * LOOKS_PER_ROW)
        place[0] = (rows[-1][0], rows[-1][1]) if len(rows) == limit * LOOKS_PER_ROW else None
        moved, failed = _resume_all(store, rows)
        return PageReport(
            scanned=lost.scanned + len(rows),
            settled=lost.moved + moved,
            deferred=lost.parked,
            failed=failed,
        )

    return page


def _resume_all(store: RuntimeStateStore, rows: Sequence[tuple[Any, ...]]) -> tuple[int, int]:
    moved = failed = 0
    waits = LockWaits()
    with short_lock_waits():
        # In any order: the same locked ones must not always come first.
        for _, job_id, account_id, reason in random.sample(rows, len(rows)):
            if waits.are_enough:
                break
            try:
                if reason == Waiting.MODEL_UNKNOWN:
                    moved += resume_known(store=store, job_id=job_id, account_id=account_id)
                elif reason == Waiting.CALL_UNCERTAIN:
                    moved += resume_resolved(store=store, job_id=job_id)
            except LostRace:
                continue  # somebody else moved it
            except KernelError as error:
                failed += 1
                log.warning("job %s was not resumed: %s", job_id, error.error_code)
            except DatabaseError as error:
                if not waits.bears(error):
                    raise
    waits.end(done=moved)
    return moved, failed


def resume_known(*, store: RuntimeStateStore, job_id: str, account_id: str) -> bool:
    """Let a job go on that waits for an unknown model step, when none is unknown any more (D2)."""

    def check() -> None:
        if steps.has_unknown_step(account_id=account_id, job_id=job_id):
            raise _StillUnknown

    try:
        return store.resume(job_id=job_id, reasons=[Waiting.MODEL_UNKNOWN], also=check)
    except _StillUnknown:
        return False


@reading
def _waiting(*, after: Place | None, limit: int) -> list[tuple[Any, ...]]:
    rows = Job.objects.filter(state=JobState.WAITING)
    if after is not None:
        at, job_id = after
        rows = rows.filter(due_at__gte=at).exclude(due_at=at, id__lte=job_id)
    columns = ("due_at", "id", "account_id", "waiting_reason")
    return list(rows.order_by("due_at", "id").values_list(*columns)[:limit])
