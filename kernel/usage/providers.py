"""One physical provider call: built from stored rows, sent once, read to its end (A5, A10)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel.conf import conf
from kernel.errors import BodyError, OutcomeUnknown
from kernel.http import AddressPolicy, Answer, Door, KeyFilter, key_to_send, without_key
from kernel.models import Service
from kernel.usage.live import Live
from kernel.usage.outcomes import Answered
from kernel.usage.request_body import output_limit_field, prepare_request, read_request
from kernel.usage.streams import StreamReader, UsageChunkFilter

# Some providers quote the key they refused. It must reach no row, caller or screen.
REMOVED = "[provider key removed]"
KEY_MISSING = "provider_key_missing"
KEY_UNREADABLE = "provider_key_unreadable"
SET_THE_KEY = "Set it where the product runs, restart, and use a new operation id."
REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-amzn-requestid", "cf-ray")


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """Everything one call needs. The key is read from the environment here and nowhere stored."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes
    policy: AddressPolicy
    hide_usage: bool
    choices: int = 1
    secret: bytes = field(default=b"", repr=False)

    def key_filter(self) -> KeyFilter:
        """A fresh filter for one answer to this call."""
        return KeyFilter(self.secret, mark=REMOVED.encode())

    def without_key(self, text: str) -> str:
        """A text of an answer to this call, without the key."""
        return without_key(text, key=self.secret.decode(), mark=REMOVED)


def build_call(
    *,
    service: Service,
    request_id: str,
    raw: bytes,
    limit_output: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> ProviderCall:
    """The call for a stored request body. NotSent when the service's key variable has no text.

    The provider's idempotency key is our request id: accounts that share a provider key may use the
    same operation id. `limit_output`: a hold relies on the service's maximum output, so the
    provider is told it where the caller named none (A15).
    """
    key = ""
    headers = [("Content-Type", "application/json"), ("Idempotency-Key", request_id)]
    if service.api_key_env:
        key = key_to_send(
            service.api_key_env,
            field="api_key_env",
            whose="provider",
            environ=environ,
            next_action=SET_THE_KEY,
        )
        headers.append(("Authorization", f"Bearer {key}"))
    request = read_request(raw)
    limit = None
    if limit_output and service.max_output_tokens is not None:
        limit = (output_limit_field(service.price_provider), service.max_output_tokens)
    prepared = prepare_request(request, upstream_model=service.model, output_limit=limit)
    return ProviderCall(
        url=f"{service.base_url}/chat/completions",
        headers=tuple(headers),
        body=prepared.body,
        policy=AddressPolicy(allow_private=service.allow_private),
        hide_usage=prepared.hide_usage,
        choices=request.choices,
        secret=key.encode(),
    )


async def send(*, door: Door, call: ProviderCall, opened: "Opened") -> Answered:
    """Send once and read to the end. Raises NotSent or OutcomeUnknown when no answer arrived (A7).

    Where the answer is a stream, `opened` hears of it at its head and gets the filtered bytes.
    """
    async with door.call(
        method="POST",
        url=call.url,
        headers=call.headers,
        content=call.body,
        policy=call.policy,
        deadline_seconds=conf.provider_deadline_seconds,
        read_seconds=conf.provider_read_seconds,
        connect_seconds=conf.provider_connect_seconds,
    ) as answer:
        if 200 <= answer.status < 300 and _is_event_stream(answer):
            return await _read_stream(answer, call=call, opened=opened)
        return await _read_plain(answer, call=call)


class Opened:
    """Told once when a provider starts to stream; the gateway hands the bytes to the client."""

    def stream(self, *, status: int, content_type: str) -> Live:
        """Called at the head of a streamed answer; returns where its bytes go."""
        raise NotImplementedError


async def _read_plain(answer: Answer, *, call: ProviderCall) -> Answered:
    cut = call.key_filter()
    pieces: list[bytes] = []
    broken = ""
    try:
        async for piece in answer.chunks(body_bytes_max=conf.provider_body_bytes_max):
            pieces.append(cut.feed(piece))
    except (BodyError, OutcomeUnknown) as error:
        broken = error.message
    pieces.append(cut.finish())
    return _answered(answer, b"".join(pieces), call=call, broken=broken)


async def _read_stream(answer: Answer, *, call: ProviderCall, opened: Opened) -> Answered:
    content_type = call.without_key(answer.header("content-type") or "text/event-stream")
    live = opened.stream(status=answer.status, content_type=content_type)
    reader = StreamReader(choices=call.choices)
    shown = UsageChunkFilter(hide=call.hide_usage)
    cut = call.key_filter()
    pieces: list[bytes] = []
    broken = ""

    def take(piece: bytes) -> None:
        pieces.append(piece)
        reader.feed(piece)
        live.publish(shown.feed(piece))

    try:
        async for piece in answer.chunks(
            body_bytes_max=conf.provider_body_bytes_max, require_end=False
        ):
            take(cut.feed(piece))
    except (BodyError, OutcomeUnknown) as error:
        broken = error.message
    take(cut.finish())
    live.publish(shown.finish())
    return _answered(answer, b"".join(pieces), call=call, broken=broken, reader=reader)


def _answered(
    answer: Answer,
    body: bytes,
    *,
    call: ProviderCall,
    broken: str,
    reader: StreamReader | None = None,
) -> Answered:
    ids = (answer.header(name) for name in REQUEST_ID_HEADERS)
    return Answered(
        status=answer.status,
        content_type=answer.header("content-type") or "application/json",
        body=body,
        provider_request_id=next((value for value in ids if value), ""),
        broken=broken,
        stream=reader.finish() if reader else None,
        without_key=call.without_key,
    )


def _is_event_stream(answer: Answer) -> bool:
    return (answer.header("content-type") or "").lower().startswith("text/event-stream")


__all__ = ["Opened", "ProviderCall", "build_call", "send"]
