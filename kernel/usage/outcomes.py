"""Outcome x billing: what one provider call came to (A7). Pure; read this for the whole table."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kernel.states import Billing, Result
from kernel.usage.metering import Metering, facts_of_body
from kernel.usage.results import Outcome
from kernel.usage.streams import StreamSummary

# Refused before any output: nothing was generated, nothing is owed. 405, 410, 413 and 415 say that
# as plainly as the statuses that A7 lists.
REJECTED = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422, 429})


@dataclass(frozen=True, slots=True)
class Answered:
    """What arrived of a provider's answer. `broken` says why the body is not whole ('' = whole).

    `without_key` takes the provider's key out of one text that was decoded from the answer.
    """

    status: int
    content_type: str
    body: bytes
    provider_request_id: str = ""
    broken: str = ""
    stream: StreamSummary | None = None
    without_key: Callable[[str], str] = field(default=str, repr=False, compare=False)


def classify(*, request_id: str, fence_token: str, answer: Answered) -> Outcome:
    """The outcome of an answer, by the table of A7."""
    facts = None if answer.stream is not None else facts_of_body(answer.body)
    if answer.stream is not None:
        metering, provider_id = answer.stream.metering, answer.stream.provider_request_id
        error = answer.stream.error
    else:
        assert facts is not None
        metering, provider_id, error = facts.metering, facts.provider_request_id, facts.error
    result, code, text = _result(answer, error)
    billing, reason = _billing(result, answer, metering)
    # Decoding may have put together a key that the bytes held only in pieces or in escapes.
    clean = answer.without_key
    return Outcome(
        request_id=request_id,
        fence_token=fence_token,
        result_state=result,
        billing_state=billing,
        pending_reason=reason,
        http_status=answer.status,
        content_type=clean(answer.content_type),
        body=answer.body,
        sha256=hashlib.sha256(answer.body).hexdigest(),
        provider_request_id=clean(provider_id or answer.provider_request_id),
        usage_text="" if metering.reason == "no_usage" else _told(metering, clean).to_text(),
        error_code=code,
        error_text=clean(text),
    )


def not_sent(*, request_id: str, fence_token: str, code: str, message: str) -> Outcome:
    """Proven: no byte left this process. Failed, nothing owed, hold released."""
    return Outcome(
        request_id=request_id,
        fence_token=fence_token,
        result_state=Result.FAILED,
        billing_state=Billing.NOT_CHARGED,
        pending_reason="not_sent",
        error_code=code,
        error_text=message,
    )


def lost(*, request_id: str, fence_token: str, code: str, message: str) -> Outcome:
    """The request may have reached the provider and nothing came back (A7)."""
    return Outcome(
        request_id=request_id,
        fence_token=fence_token,
        result_state=Result.UNKNOWN,
        billing_state=Billing.PENDING,
        pending_reason="no_usage",
        error_code=code,
        error_text=message,
    )


def _told(metering: Metering, clean: Callable[[str], str]) -> Metering:
    """The same metering with each text of the provider's made clean."""
    tier, cost = metering.service_tier, metering.reported_cost_usd
    return replace(
        metering,
        raw_text=clean(metering.raw_text),
        detail=clean(metering.detail),
        service_tier=None if tier is None else clean(tier),
        reported_cost_usd=None if cost is None else clean(cost),
    )


def _result(answer: Answered, error: str | None) -> tuple[str, str, str]:
    if answer.status in REJECTED:
        return Result.FAILED, "provider_rejected", f"The provider answered {answer.status}."
    if not 200 <= answer.status < 300:
        return Result.UNKNOWN, "provider_error", f"The provider answered {answer.status}."
    if answer.stream is not None:
        if error:
            return Result.FAILED, "stream_error", error
        if answer.stream.terminal:
            return Result.COMPLETE, "", ""
        why = answer.broken or "the stream ended without its terminal event"
        return Result.UNKNOWN, "stream_cut", why
    if answer.broken:
        return Result.UNKNOWN, "body_broken", answer.broken
    return Result.COMPLETE, "", ""


def _billing(result: str, answer: Answered, metering: Metering) -> tuple[str, str]:
    if metering.reason is None:
        return Billing.PENDING, ""
    if answer.status in REJECTED and metering.reason == "no_usage":
        return Billing.NOT_CHARGED, "rejected"
    if result == Result.UNKNOWN and metering.reason == "no_usage" and answer.body and answer.broken:
        return Billing.PENDING, "truncated"
    return Billing.PENDING, metering.reason
