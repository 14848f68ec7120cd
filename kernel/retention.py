"""Retention: old contents leave in bounded pages; identities, markers and evidence stay (A17).

What goes: result bodies, the input and result of ended jobs, the rows of attempts at notifications,
the content of resolved dead letters, the files of exports. What stays for good, and why: the
request and job identities (a repeat must find them, never start anew), the markers of decisions and
replays (never a second admission), dead letters with their replay identity, approvals and calls
(who allowed what), the ledger and the audit. A purged input leaves its sha256: a repeat is still
told from another job. docs/retention.md says it all.

A page walks an index of what is not purged yet, oldest first. Its transactions are short and hold
no content: what leaves a digest is read and hashed before. A killed page goes on where it stopped.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q, QuerySet

from kernel import clock, schema
from kernel.conf import conf
from kernel.errors import Unavailable
from kernel.models import (
    DeadLetter,
    DeadLetterPurge,
    DeliveryAttempt,
    Export,
    ExportChunk,
    JobPurge,
    Notification,
    NotificationPurge,
    Operation,
    RetentionStatus,
)
from kernel.runtime.maintenance import PageReport
from kernel.states import DeadLetterState, JobState, NotificationState, OperationState
from kernel.transactions import reading, requires_transaction, transaction
from kernel.usage.recovery import purge_bodies

Position = tuple[datetime, str]
Row = tuple[datetime, str, str]  # when it ended, its id, its state
CONTENTS_AT_ONCE = 8  # contents that are in memory, or emptied by one transaction
EXPORT_ENDS = (OperationState.DONE, OperationState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Policy:
    """One kind of content: its pass, the setting that bounds its age, and its page."""

    kind: str
    setting: str
    page: Callable[..., PageReport]

    @property
    def days(self) -> int:
        """How long it is kept."""
        found: int = getattr(conf, self.setting)
        return found

    def run(self, *, cursor: Any = None, limit: int) -> PageReport:
        """One page of this purge; counts what it removed. Nothing without migration 0071."""
        if not is_available():
            return purge_bodies(cursor=cursor, limit=limit) if self.kind == BODIES else PageReport()
        report = self.page(cursor=cursor, limit=limit)
        if report.settled:
            _count(kind=self.kind, count=report.settled, is_first=cursor is None)
        return report


def is_available() -> bool:
    """Whether migration 0071 is applied."""
    try:
        schema.require(schema.RETENTION)
    except Unavailable:
        return False
    return True


def purge_jobs(*, cursor: Position | None = None, limit: int) -> PageReport:
    """Empty input and result of jobs that ended `job_retention_days` ago; settled = jobs.

    The child of a notification stays whole while its dead letter may still be replayed: the replay
    runs it with its full input (F4).
    """
    rows = JobPurge.objects.filter(purged_at=None)
    page = _older(rows, "finished_at", conf.job_retention_days, cursor, limit)
    purged = 0
    for part in _parts(page):
        digests = _digests(JobPurge, "input_text", part)
        purged += _empty_jobs(ended=part, digests=digests)
    return _report(page, purged, limit)


@transaction
def purge_attempts(*, cursor: Position | None = None, limit: int) -> PageReport:
    """Delete the attempts at notifications that ended `attempt_retention_days` ago.

    Settled = attempts. A dead notification keeps its attempts until its dead letter is resolved.
    The notification still says how many there were, and how many may have arrived.
    """
    rows = NotificationPurge.objects.filter(attempts_purged_at=None)
    page = _older(rows, "finished_at", conf.attempt_retention_days, cursor, limit)
    dead = [row_id for _, row_id, state in page if state != NotificationState.DELIVERED]
    kept = set(_unresolved(dead).values_list("notification_id", flat=True))
    ids = [row_id for _, row_id, _ in page if row_id not in kept]
    # Deleted by primary key: a delete by secondary index deadlocks with inserts.
    attempts = DeliveryAttempt.objects.filter(notification_id__in=ids)
    doomed = list(attempts.values_list("id", flat=True))
    DeliveryAttempt.objects.filter(id__in=doomed).delete()
    NotificationPurge.objects.filter(id__in=ids).update(attempts_purged_at=clock.db_now())
    return _report(page, len(doomed), limit)


def purge_dead_letters(*, cursor: Position | None = None, limit: int) -> PageReport:
    """Empty the content of dead letters resolved `dead_letter_retention_days` ago.

    Archived ones may be restored and replayed, so they stay whole.
    """
    rows = DeadLetterPurge.objects.filter(purged_at=None)
    page = _older(rows, "resolved_at", conf.dead_letter_retention_days, cursor, limit)
    purged = 0
    for part in _parts([one for one in page if one[2] == DeadLetterState.RESOLVED]):
        digests = _digests(DeadLetterPurge, "content", part)
        purged += _empty_letters(resolved=part, digests=digests)
    return _report(page, purged, limit)


@transaction
def purge_exports(*, cursor: Position | None = None, limit: int) -> PageReport:
    """Delete the file of the oldest export that ended `export_retention_days` ago, in pieces.

    Settled = files. The operation, its plan and the file's sha256 stay.
    """
    before = clock.db_now() - timedelta(days=conf.export_retention_days)
    old = Export.objects.filter(purged_at=None, created_at__lt=before).order_by("created_at")
    # Not a page of the oldest: plans that nobody ever starts would hide the others for good.
    ended = Operation.objects.filter(state__in=EXPORT_ENDS, updated_at__lt=before).values("id")
    ids = old.filter(operation_id__in=ended).values_list("operation_id", flat=True)
    first = ids.first()
    if first is None:
        return PageReport()
    pieces = ExportChunk.objects.filter(operation_id=first).order_by("sequence")
    doomed = list(pieces.values_list("id", flat=True)[:limit])
    ExportChunk.objects.filter(id__in=doomed).delete()
    is_gone = len(doomed) < limit
    if is_gone:
        Export.objects.filter(operation_id=first).update(purged_at=clock.db_now())
    return PageReport(scanned=len(doomed), settled=int(is_gone), cursor=first)


BODIES = "result_bodies"
POLICIES = (
    Policy(BODIES, "result_retention_days", purge_bodies),
    Policy("jobs", "job_retention_days", purge_jobs),
    Policy("attempts", "attempt_retention_days", purge_attempts),
    Policy("dead_letters", "dead_letter_retention_days", purge_dead_letters),
    Policy("exports", "export_retention_days", purge_exports),
)


def pass_name(policy: Policy) -> str:
    """The name of its maintenance pass; that of the result bodies is older than the others."""
    return "purge" if policy.kind == BODIES else f"purge_{policy.kind}"


@reading
def statuses() -> dict[str, RetentionStatus]:
    """What each kind of purge has removed, by kind. Nothing without migration 0071."""
    if not is_available():
        return {}
    return {row.kind: row for row in RetentionStatus.objects.all()}


def sha256_of(content: str | bytes | memoryview) -> str:
    """The digest that a purged content leaves."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The rows in parts of CONTENTS_AT_ONCE."""
    for start in range(0, len(rows), CONTENTS_AT_ONCE):
        yield rows[start : start + CONTENTS_AT_ONCE]


@reading
def _digests(model: Any, column: str, rows: Sequence[Row]) -> dict[str, str]:
    """The sha256 of each row's content, by id; read and hashed before anything is locked."""
    found = model.objects.filter(id__in=[row_id for _, row_id, _ in rows])
    return {row_id: sha256_of(content) for row_id, content in found.values_list("id", column)}


@transaction
def _empty_jobs(*, ended: Sequence[Row], digests: Mapping[str, str]) -> int:
    """Compare-and-set on state and end: a job that ran again meanwhile is left alone."""
    failed = [job_id for _, job_id, state in ended if state != JobState.DONE]
    kept = _children_to_replay_in_tx(failed)
    now = clock.db_now()
    return sum(
        JobPurge.objects.filter(id=job_id, state=state, finished_at=at, purged_at=None).update(
            input_text="", result_text="", input_sha256=digests[job_id], purged_at=now
        )
        for at, job_id, state in ended
        if job_id in digests and job_id not in kept
    )


@transaction
def _empty_letters(*, resolved: Sequence[Row], digests: Mapping[str, str]) -> int:
    now = clock.db_now()
    return sum(
        DeadLetterPurge.objects.filter(id=row_id, state=state, purged_at=None).update(
            content=b"", content_sha256=digests[row_id], purged_at=now
        )
        for _, row_id, state in resolved
        if row_id in digests
    )


@reading
def _older(
    rows: "QuerySet[Any]", column: str, days: int, cursor: Position | None, limit: int
) -> list[Row]:
    """(time, id, state) of what ended so long ago, oldest first, after the cursor."""
    rows = rows.filter(**{f"{column}__lt": clock.db_now() - timedelta(days=days)})
    if cursor is not None:
        at, row_id = cursor
        later = Q(**{f"{column}__gt": at}) | Q(id__gt=row_id)
        rows = rows.filter(**{f"{column}__gte": at}).filter(later)
    return list(rows.order_by(column, "id").values_list(column, "id", "state")[:limit])


def _report(page: Sequence[Row], purged: int, limit: int) -> PageReport:
    more = page[-1][:2] if len(page) == limit else None
    return PageReport(scanned=len(page), settled=purged, cursor=more)


@requires_transaction
def _children_to_replay_in_tx(job_ids: Sequence[str]) -> set[str]:
    """Which of these jobs are children whose dead letter is not resolved, or not written yet."""
    sent = Notification.objects.filter(child_job_id__in=job_ids)
    rows = list(sent.values_list("id", "child_job_id", "state"))
    letters = set(
        _unresolved([one for one, _, _ in rows]).values_list("notification_id", flat=True)
    )
    waits = NotificationState.WITH_EXECUTOR
    return {job for one, job, state in rows if one in letters or state == waits}


def _unresolved(notification_ids: Sequence[str]) -> "QuerySet[DeadLetter]":
    letters = DeadLetter.objects.filter(notification_id__in=notification_ids)
    return letters.exclude(state=DeadLetterState.RESOLVED)


@transaction
def _count(*, kind: str, count: int, is_first: bool) -> None:
    """Add a page to what was removed: to this run's count, unless it begins a new one."""
    row, _ = RetentionStatus.objects.get_or_create(kind=kind, defaults={"last_at": clock.db_now()})
    RetentionStatus.objects.filter(kind=row.kind).update(
        last_count=count if is_first else F("last_count") + count,
        total_count=F("total_count") + count,
        last_at=clock.db_now(),
    )
