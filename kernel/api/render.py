"""What a request row answers over HTTP: first answers, repeats and status documents (A8)."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from kernel.api.errors import HTTP_REQUEST_ID, http_request_id, render_error
from kernel.errors import Conflict, Gone, KernelError, OutcomeUnknown, PeerError
from kernel.models import Request
from kernel.money import nano_to_usd
from kernel.states import Billing, Result
from kernel.usage.metering import Metering
from kernel.usage.providers import KEY_MISSING, KEY_UNREADABLE, SET_THE_KEY
from kernel.usage.streams import UsageChunkFilter

IN_FLIGHT_RETRY_SECONDS = 2
# What an operator found; the row's own text still says why its outcome was unknown before.
RESOLVED = {
    "resolved_executed": "An operator found that the provider executed it; its answer is lost.",
    "resolved_not_executed": "An operator found that the provider did not execute it.",
}


def headers_of(row: Request, *, replayed: bool) -> dict[str, str]:
    """The Bailing-* headers that every answer about a model request carries."""
    return {
        "Bailing-Operation-Id": row.operation_id,
        "Bailing-Request-Id": row.id,
        "Bailing-Result-State": row.result_state,
        "Bailing-Billing-State": row.billing_state,
        "Idempotent-Replayed": "true" if replayed else "false",
    }


def saved_answer(
    request: HttpRequest, row: Request, body: bytes | None, *, replayed: bool
) -> HttpResponse:
    """The answer of an ended request: the saved bytes, or the error its state stands for (A8)."""
    headers = headers_of(row, replayed=replayed)
    had_answer = _has_answer(row)
    if had_answer and (row.purged_at is not None or body is None):
        return render_error(request, _expired(), headers=headers)
    if body is None or not had_answer:
        return render_error(request, _error_of(row), headers=_with_retry(row, headers))
    shown = body
    is_stream = row.content_type.lower().startswith("text/event-stream")
    if row.streamed and row.hide_usage and is_stream:
        shown_filter = UsageChunkFilter(hide=True)
        shown = shown_filter.feed(body) + shown_filter.finish()
    response = HttpResponse(
        shown, status=row.http_status or 200, content_type=row.content_type or "application/json"
    )
    response._has_been_logged = True  # type: ignore[attr-defined]  # saved, no error of ours
    headers["x-should-retry"] = "false"
    return _finish(request, response, headers)


def live_answer(
    request: HttpRequest,
    row: Request,
    *,
    status: int,
    content_type: str,
    pieces: AsyncIterator[bytes],
) -> StreamingHttpResponse:
    """A stream while it runs; its end is held until the result is saved (A10)."""
    response = StreamingHttpResponse(pieces, status=status, content_type=content_type)
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    headers = {**headers_of(row, replayed=False), "Bailing-Result-State": Result.DISPATCHED}
    _finish(request, response, headers)
    return response


def _has_answer(row: Request) -> bool:
    """Whether a provider's answer was saved. The bytes of a resolved request are only evidence."""
    if row.result_state == Result.FAILED:
        return row.http_status is not None and not row.error_code.startswith("resolved_")
    return row.result_state == Result.COMPLETE


def _finish(request: HttpRequest, response: Any, headers: dict[str, str]) -> Any:
    for name, value in headers.items():
        response[name] = value
    response[HTTP_REQUEST_ID] = http_request_id(request)
    return response


def _with_retry(row: Request, headers: dict[str, str]) -> dict[str, str]:
    if row.result_state == Result.DISPATCHED:
        return {**headers, "Retry-After": str(IN_FLIGHT_RETRY_SECONDS)}
    return headers


def _expired() -> KernelError:
    return Gone(
        "The saved answer was removed after its retention.",
        next_action="Use a new operation id to generate again.",
    )


def _error_of(row: Request) -> KernelError:
    names = {"operation_id": row.operation_id, "request_id": row.id}
    if row.result_state == Result.DISPATCHED:
        return InFlight("The request was sent; its outcome is not known yet.", **names)
    if row.result_state == Result.ADMITTED:
        return Conflict(
            "The request is admitted and was not sent.",
            code="not_dispatched",
            next_action=(
                f"POST /usage/v1/requests/{row.operation_id}/dispatch to send it,"
                f" or .../cancel to cancel it."
            ),
            **names,
        )
    if row.result_state == Result.CANCELLED:
        return Conflict(
            "The request was cancelled.",
            code="cancelled",
            next_action="Use a new operation id to generate.",
            **names,
        )
    if row.result_state == Result.FAILED:
        return PeerError(
            RESOLVED.get(row.error_code) or row.error_text or "The request failed.",
            code=row.error_code or "failed",
            next_action=SET_THE_KEY
            if row.error_code in (KEY_MISSING, KEY_UNREADABLE)
            else "Nothing more happens under this operation id; use a new one.",
            **names,
        )
    return OutcomeUnknown(
        "The request was sent and its outcome is not known. It is never sent again.",
        next_action="An operator can resolve it; read the operation to see how it ends.",
        **names,
    )


class InFlight(Conflict):
    """409 that may be repeated: the outcome is still to come."""

    code, retryable = "in_flight", True
    next_action = "Wait and repeat the same call with the same operation id."


def status_document(row: Request) -> dict[str, Any]:
    """The state of one request for `GET /usage/v1/requests/{operation_id}`."""
    settled = row.billing_state == Billing.SETTLED
    return {
        "operation_id": row.operation_id,
        "request_id": row.id,
        "service": row.service_id,
        "result_state": row.result_state,
        "billing_state": row.billing_state,
        "pending_reason": row.pending_reason or None,
        "error_code": row.error_code or None,
        "usage": _meters(row.usage_text),
        "reference_cost_usd": _usd(row.reference_nano) if settled else None,
        "billed_usd": _usd(row.billed_nano) if settled else None,
        "result_sha256": row.result_sha256 or None,
        "result_bytes": row.result_bytes,
        "times": {
            "admitted_at": _time(row.admitted_at),
            "dispatched_at": _time(row.dispatched_at),
            "result_at": _time(row.result_at),
            "settled_at": _time(row.settled_at),
            "updated_at": _time(row.updated_at),
        },
    }


def _meters(usage_text: str) -> dict[str, int] | None:
    try:
        return Metering.from_text(usage_text).meters if usage_text else None
    except (ValueError, RecursionError):
        return None  # billing says `corrupt`


def _usd(nano: int | None) -> str | None:
    return None if nano is None else nano_to_usd(nano)


def _time(value: datetime | None) -> str | None:
    return value.isoformat() if value else None
