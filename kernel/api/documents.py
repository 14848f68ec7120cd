"""What jobs, approvals, decisions and invocations look like over HTTP: one place for each shape.

Times carry their offset. Arguments are shown masked, as text, so that no number changes on its way.
"""

import json
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse

from kernel.api import errors
from kernel.api.as_written import document_text, stored
from kernel.approvals.arguments import masked
from kernel.conf import conf
from kernel.jobs.receipts import Invoked
from kernel.models import Approval, Continuation, Pause
from kernel.state import JobRecord
from kernel.states import ApprovalState, CallState, JobState, Owed, Waiting

RETRY_DECISION = "retry the same decision_id; do not create another approval"
WHAT_TO_DO = {
    ApprovalState.OPEN: (
        'POST /v1/approvals/{id}/decision with {{"decision": "approved" | "denied",'
        ' "decision_id": "<your id>"}}, or decide in the console.'
    ),
    ApprovalState.APPROVED: "Nothing: the grant is used by its call, until it expires.",
    ApprovalState.DENIED: "Nothing: it was denied and nothing runs.",
    ApprovalState.EXPIRED: "Nothing: it expired and nothing runs.",
    ApprovalState.CANCELLED: "Nothing: it was cancelled and nothing runs.",
    ApprovalState.CONSUMED: "Nothing: its call was made; read the job or the receipt.",
}
INVOCATION_WAYS = {
    "waiting": "A person decides its approval; then POST /v1/agent/invocations/{id}/resume.",
    "ready": "POST /v1/agent/invocations/{id}/resume sends it.",
    "running": "Wait, then GET /v1/agent/invocations/{id}/receipt.",
    "done": "Nothing: the result is saved.",
    "failed": "Nothing: it was not executed. Use a new invocation id for another call.",
    "refused": "Nothing: it was refused and not executed.",
    "uncertain": "An operator resolves it; it is never sent again by itself.",
}
JOB_WAITS = {
    Waiting.APPROVAL: "Decide its open approvals: GET /v1/approvals?state=open.",
    Waiting.MODEL_UNKNOWN: "An operator resolves the model request whose outcome is unknown.",
    Waiting.CALL_UNCERTAIN: "An operator resolves the tool call whose outcome is uncertain.",
}


def answer(request: HttpRequest, document: dict[str, Any], *, status: int = 200) -> HttpResponse:
    """A document as an HTTP answer, with the id of the HTTP request."""
    response = HttpResponse(document_text(document), content_type="application/json", status=status)
    response[errors.HTTP_REQUEST_ID] = errors.http_request_id(request)
    return response


def job_document(job: Any) -> dict[str, Any]:
    """One job without its bodies; `job` is a JobRecord or a row."""
    return {
        "job_id": job.id,
        "request_id": job.request_id,
        "route": job.route_id,
        "target": job.target,
        "state": job.state,
        "waiting_reason": job.waiting_reason or None,
        "error": {"code": job.error_code, "message": job.error_text} if job.error_code else None,
        "attempts": job.attempts,
        "next_action": _job_way_out(job),
        "created_at": time(job.created_at),
        "due_at": time(job.due_at),
        "finished_at": time(job.finished_at),
        "updated_at": time(job.updated_at),
    }


def whole_job_document(
    job: JobRecord, approvals: list[Approval], *, pause: Pause | None
) -> dict[str, Any]:
    """One job with its input, its result and its questions; `pause` = what keeps it queued (D4)."""
    shown = job_document(job)
    if pause is not None and job.state == JobState.QUEUED:
        why = f"{pause.scope} is paused: {pause.reason}"
        shown["next_action"] = f"Wait until an operator lifts the pause; {why}"
    return {
        **shown,
        "input": stored(job.input_text),
        "result": stored(job.result_text),
        "content_purged": not job.input_text,
        "approvals": [
            {
                "approval_id": row.id,
                "state": row.state,
                "tool": row.tool,
                "expires_at": time(row.expires_at),
            }
            for row in approvals
        ],
    }


def claimed_document(job: JobRecord) -> dict[str, Any]:
    """One job as its executor gets it: the input, and the fence that every report names."""
    return {
        "job_id": job.id,
        "fence": job.fence_token,
        "request_id": job.request_id,
        "route": job.route_id,
        "input": stored(job.input_text),
        "attempts": job.attempts,
        "lease_expires_at": time(job.lease_expires_at),
        "heartbeat_seconds": conf.job_heartbeat_seconds,
    }


def approval_document(row: Approval, continuation: Continuation | None = None) -> dict[str, Any]:
    """One approval without its arguments."""
    owed = continuation is not None and continuation.state == Owed.OWED
    return {
        "approval_id": row.id,
        "state": row.state,
        "tool": row.tool,
        "tool_version": row.tool_version,
        "risk": row.risk,
        "effect": row.effect,
        "job_id": row.job_id or None,
        "invocation_id": row.invocation_id or None,
        "request_id": row.request_id,
        "requested_by": row.requested_by,
        "arguments_sha256": row.arguments_sha256,
        "supersedes": row.supersedes_id or None,
        "created_at": time(row.created_at),
        "expires_at": time(row.expires_at),
        "consumed_at": time(row.consumed_at),
        **decision_fields(row),
        "continuation_pending": owed,
        "next_action": WHAT_TO_DO[row.state].format(id=row.id),
    }


def whole_approval_document(row: Approval, continuation: Continuation | None) -> dict[str, Any]:
    """One approval with its masked arguments and how its decision is carried through."""
    shown = masked(row.arguments_text)
    return {
        **approval_document(row, continuation),
        "arguments_text": shown,
        "arguments_masked": shown != row.arguments_text,
        "canonical_version": row.canonical_version,
        "continuation": None if continuation is None else _continuation(continuation),
    }


def decision_fields(row: Approval) -> dict[str, Any]:
    """Who decided what, when and why; null while nobody has. The same for every repeat (C3)."""
    return {
        "decision": row.decision or None,
        "decision_id": row.decision_id,
        "decided_by": row.decided_by_id or None,
        "decided_by_kind": row.decided_by_kind or None,
        "decided_at": time(row.decided_at),
        "reason": row.reason or None,
    }


def decided_document(row: Approval, *, replayed: bool, pending: bool) -> dict[str, Any]:
    """The answer of a decision that is carried through, or will be when its job stops (C4)."""
    return {**approval_document(row), "replayed": replayed, "continuation_pending": pending}


def recorded_document(row: Approval, *, http_request_id: str) -> dict[str, Any]:
    """The answer of a recorded decision that could not be carried through yet (C4)."""
    owed = {
        "decision_recorded": True,
        "continuation_pending": True,
        "next_action": RETRY_DECISION,
        "approval_id": row.id,
        **decision_fields(row),
    }
    error = {
        "code": "continuation_pending",
        "message": "The decision is recorded; carrying it through failed and is tried again.",
        "retryable": True,
        "http_request_id": http_request_id,
    }
    return {**owed, "error": {**error, **owed}}


def invocation_document(found: Invoked) -> dict[str, Any]:
    """One invocation: its state in one word, its journaled call, its question, the saved result."""
    call, approval = found.call, found.approval
    return {
        "invocation_id": found.invocation.invocation_id,
        "tool": found.invocation.tool,
        "tool_version": call.tool_version,
        "state": found.state,
        "arguments_sha256": call.arguments_sha256,
        "requested_by": found.invocation.requested_by,
        "created_at": time(found.invocation.created_at),
        "approval": None if approval is None else approval_document(approval),
        "journal": {
            "call_id": call.id,
            "state": call.state,
            "idempotency_key": call.idempotency_key,
            "sent_nothing": call.tries,
            "asked": call.asks,
            "error_code": call.error_code or None,
            "note": call.note or None,
            "updated_at": time(call.updated_at),
            "finished_at": time(call.finished_at),
        },
        "result": {
            "http_status": call.http_status,
            "text": call.response_text,
            "body_bytes": call.response_bytes,
        }
        if call.state == CallState.DONE
        else None,
        "next_action": INVOCATION_WAYS[found.state].format(id=found.invocation.invocation_id),
    }


def time(value: datetime | None) -> str | None:
    """ISO 8601 with the offset."""
    return value.isoformat() if value else None


def plain(text: str) -> Any:
    """Stored JSON as a value; text that is none stays text. None for nothing."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


def _continuation(row: Continuation) -> dict[str, Any]:
    return {
        "state": row.state,
        "attempts": row.attempts,
        # The kind alone: the text may name hosts; operators read it in the console.
        "error": row.error_text.partition(":")[0] or None,
        "next_attempt_at": time(row.next_attempt_at) if row.state == Owed.OWED else None,
        "finished_at": time(row.finished_at),
    }


def _job_way_out(job: Any) -> str | None:
    if job.state == JobState.WAITING:
        return JOB_WAITS.get(job.waiting_reason)
    if job.state == JobState.PARKED:
        return "An operator resumes or cancels it; its workers were lost too often."
    return None
