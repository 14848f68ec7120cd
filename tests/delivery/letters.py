"""Dead letters as sending leaves them, and what the tables say about them afterwards."""

import json
from collections.abc import Callable
from typing import Any

from kernel import clock, outbox
from kernel.audit import Actor
from kernel.delivery import dead_letters, sending
from kernel.ids import new_id
from kernel.models import (
    AuditRow,
    DeadLetter,
    DeadLetterGroup,
    DeliveryAttempt,
    Job,
    JobMarkers,
    Notification,
)
from kernel.state import DatabaseStore
from kernel.transactions import transaction

STORE = DatabaseStore()
ANN, BEN = Actor("user", "ann"), Actor("user", "ben")
CONTENT = '{"type":"job.finished","data":{"note":"ok 👨‍💻 é"}}'.encode()
ERROR = "HTTP 500 from https://hooks.example/7 at 2026-01-02T03:04:05Z"


@transaction
def in_tx(*, act: Callable[[], Any]) -> Any:
    """One transaction around verbs that join their caller's."""
    return act()


def notification(**fields: Any) -> Notification:
    """A row whose attempts are over."""
    now = clock.db_now()
    values: dict[str, Any] = {
        "id": new_id("ntf"),
        "account_id": "acme",
        "kind": "callback",
        "channel": "webhook",
        "sender": "bot-a",
        "recipient": "https://hooks.example/7",
        "request_id": "req-1",
        "job_id": "job_1",
        "content": CONTENT,
        "event": "job.finished",
        "destination_id": "dst_1",
        "state": "dead",
        "attempts": 8,
        "unknown_attempts": 2,
        "error_text": ERROR,
        "due_at": now,
        "created_at": now,
        "updated_at": now,
        "finished_at": now,
        **fields,
    }
    row = Notification(**values)
    row.save(force_insert=True)
    DeliveryAttempt.objects.bulk_create(
        DeliveryAttempt(
            notification_id=row.id,
            number=number,
            outcome="unknown" if number <= row.unknown_attempts else "refused",
            started_at=now,
            ended_at=now,
        )
        for number in range(1, row.attempts + 1)
    )
    return row


def dead(error_text: str = ERROR, **fields: Any) -> DeadLetter:
    """A dead letter of a native channel."""
    row = notification(**fields)
    letter: DeadLetter = in_tx(
        act=lambda: dead_letters.record_in_tx(
            notification=row, error_text=error_text, kind="native"
        )
    )
    return letter


def fail_again(notification_id: str, error_text: str = ERROR) -> DeadLetter:
    """The replay's notification ends dead, as record_attempt ends it."""
    row = Notification.objects.get(id=notification_id)

    def act() -> DeadLetter:
        assert Notification.objects.filter(id=row.id, state="queued").update(state="dead") == 1
        return dead_letters.record_in_tx(notification=row, error_text=error_text, kind="native")

    letter: DeadLetter = in_tx(act=act)
    return letter


def child(**fields: Any) -> tuple[Notification, Job]:
    """A notification that an executor has, and its child job in the queue."""
    row = notification(
        channel="executor",
        state="with_executor",
        attempts=0,
        unknown_attempts=0,
        finished_at=None,
        **fields,
    )
    job = outbox.child_of(row, at=row.created_at)
    job.save(force_insert=True)
    Notification.objects.filter(id=row.id).update(child_job_id=job.id)
    return Notification.objects.get(id=row.id), job


def run_child(job_id: str, *, delivered: bool = False, error: str = ERROR) -> None:
    """The executor claims and reports, as its door does."""
    jobs = STORE.claim(owner="tok_exec", target="executor", limit=50)
    (job,) = [one for one in jobs if one.id == job_id]
    STORE.finish(
        fence=job.fence,
        state="done" if delivered else "failed",
        error_code="" if delivered else "executor_failed",
        error_text="" if delivered else error,
        also=lambda: end_child(job_id, delivered, error),
    )


def end_child(job_id: str, delivered: bool, error: str) -> None:
    sending.end_child_in_tx(job_id=job_id, delivered=delivered, error=error)


def dead_child(**fields: Any) -> DeadLetter:
    """A dead letter of kind `executor`, with its failed child job."""
    row, job = child(**fields)
    run_child(job.id)
    return DeadLetter.objects.get(notification_id=row.id)


# --- what the tables say --------------------------------------------------------------------


def reread(letter: DeadLetter) -> DeadLetter:
    return DeadLetter.objects.get(id=letter.id)


def group_of(letter: DeadLetter) -> tuple[int, int]:
    """(total, open) of its group."""
    row = DeadLetterGroup.objects.get(fingerprint=letter.error_fingerprint)
    return row.total_count, row.open_count


def acts_of(letter: DeadLetter) -> list[str]:
    rows = AuditRow.objects.filter(subject=f"dead_letter:{letter.id}").order_by("sequence")
    return [action.removeprefix("dead_letter.") for action in rows.values_list("action", flat=True)]


def replays_of(letter: DeadLetter) -> list[Notification]:
    return list(Notification.objects.filter(replay_of_id=letter.id))


def markers_of(job_id: str) -> list[str]:
    text = JobMarkers.objects.values_list("delivery_replay_keys", flat=True).get(id=job_id)
    return json.loads(text) if text else []


def everything() -> tuple[list[Any], ...]:
    """Every row that a replay could touch, to show that nothing changed."""
    models = (DeadLetter, Notification, Job, JobMarkers, AuditRow, DeadLetterGroup)
    return tuple(list(model.objects.order_by("pk").values()) for model in models)
