"""What notifications, attempts and dead letters look like over HTTP: one place for each shape."""

from collections.abc import Sequence
from typing import Any

from kernel.api.documents import plain, time
from kernel.delivery.admissions import ALREADY, QUEUED, STILL, Replayed
from kernel.delivery.lookup import Kept
from kernel.models import DeadLetter, DeliveryAttempt, Notification
from kernel.states import DeadLetterState, NotificationState

WAYS = {
    QUEUED: "Nothing: it is queued, which is no receipt. GET /v1/notifications/{id} tells the end.",
    ALREADY: "Nothing: it was queued before. GET /v1/notifications/{id} tells how it ended.",
    STILL: "Wait: it is being sent. GET /v1/notifications/{id} tells the end.",
}
LETTER_WAYS = {
    DeadLetterState.OPEN: "POST /v1/dead-letters/{id}/replay sends it again.",
    DeadLetterState.RESOLVED: "Nothing: it was replayed.",
    DeadLetterState.ARCHIVED: "An operator restores it before it can be replayed.",
}


def notification_document(row: Notification) -> dict[str, Any]:
    """One notification without its content."""
    return {
        "notification_id": row.id,
        "message_id": row.request_id or None,
        "event": row.event or None,
        "channel": row.channel,
        "destination": row.destination_id or None,
        "recipient": row.recipient,
        "state": row.state,
        "attempts": row.attempts,
        "unknown_attempts": row.unknown_attempts,
        "error": row.error_text or None,
        "job_id": row.job_id or None,
        "child_job_id": row.child_job_id or None,
        "replay_of": row.replay_of_id or None,
        "due_at": time(row.due_at) if row.state == NotificationState.QUEUED else None,
        "created_at": time(row.created_at),
        "finished_at": time(row.finished_at),
        "updated_at": time(row.updated_at),
    }


def whole_notification_document(
    row: Notification, attempts: Sequence[DeliveryAttempt]
) -> dict[str, Any]:
    """One notification with its content and what each attempt came to."""
    return {
        **notification_document(row),
        "content_type": row.content_type,
        "content": _content(row.content),
        "attempt_list": [
            {
                "number": one.number,
                "outcome": one.outcome,
                "http_status": one.http_status,
                "evidence": one.evidence_text or None,
                "started_at": time(one.started_at),
                "ended_at": time(one.ended_at),
                "next_due_at": time(one.next_due_at),
            }
            for one in attempts
        ],
    }


def dead_letter_document(row: DeadLetter) -> dict[str, Any]:
    """One dead letter without its content."""
    return {
        "dead_letter_id": row.id,
        "state": row.state,
        "notification_id": row.notification_id,
        "event": row.event or None,
        "channel": row.channel,
        "destination": row.destination_id or None,
        "recipient": row.recipient,
        "sender": row.sender or None,
        "request_id": row.request_id or None,
        "job_id": row.job_id or None,
        "error": row.error_text,
        "error_fingerprint": row.error_fingerprint,
        "unknown_attempts": row.unknown_attempts,
        "parent": row.parent_id or None,
        "next_action": LETTER_WAYS[row.state].format(id=row.id),
        "created_at": time(row.created_at),
        "resolved_at": time(row.resolved_at),
        "updated_at": time(row.updated_at),
    }


def whole_dead_letter_document(found: Kept, replay: Notification | None) -> dict[str, Any]:
    """One dead letter with its content and what its replay came to."""
    return {
        **dead_letter_document(found.letter),
        "kind": found.kind,
        "original_child_id": found.original_child_id or None,
        "replay_identity": found.replay_identity or None,
        "content_type": found.letter.content_type or None,
        "content": _content(found.letter.content),
        "replay": None if replay is None else notification_document(replay),
    }


def replayed_document(dead_letter_id: str, told: Replayed) -> dict[str, Any]:
    """The answer of a replay: an admission, which is no receipt (F5)."""
    return {
        "dead_letter_id": dead_letter_id,
        "state": told.state,
        "admitted": told.admitted,
        "replay_identity": told.replay_identity,
        "notification_id": told.notification_id,
        "child_job_id": told.child_job_id or None,
        "next_action": WAYS[told.state].format(id=told.notification_id),
    }


def _content(raw: bytes | memoryview) -> Any:
    """The content as JSON where it is JSON, else as text; what is no UTF-8 shows as U+FFFD."""
    return plain(bytes(raw).decode("utf-8", "replace"))
