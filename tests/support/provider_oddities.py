"""Strange content of the test provider: errors, metering in odd shapes, odd bytes."""

import base64
import gzip
import zlib
from collections.abc import Iterator
from typing import Any

from tests.support.provider_answers import (
    DONE,
    USAGE,
    answer,
    behaviour,
    chunk_event,
    completion,
    dump,
    event,
    id_of,
    send_events,
    stream_events,
)
from tests.support.provider_wire import ReceivedCall, Wire

ZERO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
REASONS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
MULTIBYTE_TEXT = "日本語 – naïve café, здравствуй 🙂 ok"

# --- refusals and errors ----------------------------------------------------------------------


@behaviour
async def status(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """`status_429` and so on: an OpenAI error body; `retry_after` seconds, `usage` if given.

    A 3xx points back to this server, so that a followed redirect is a second call in the log.
    """
    code, headers = params["status"], {}
    if "retry_after" in params:
        headers["Retry-After"] = str(params["retry_after"])
    if 300 <= code < 400:
        headers["Location"] = params.get("location", "/v1/chat/completions")
    kind = REASONS.get(code, "server_error" if code >= 500 else "invalid_request_error")
    error = {"message": f"test provider says {code}", "type": kind, "code": None}
    value = {"error": error}
    if "usage" in params:
        value["usage"] = params["usage"]
    await wire.whole(code, dump(value), headers)


@behaviour
async def error_event(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """200, `events` content events (default 2), the usage if given, then an error event."""
    events = stream_events(call, {**params, "usage": "omit"})[: params.get("events", 2)]
    if "usage" in params:
        events.append(chunk_event(call, params, None, usage=params["usage"]))
    events.append(event({"error": {"message": "test provider broke", "type": "server_error"}}))
    await wire.start_chunks()
    await send_events(wire, events, params)
    await wire.end_chunks()


@behaviour
async def response_failed(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """A Responses stream that ends in `response.failed`, with the usage if given."""
    response = {"id": id_of(call, params), "status": "failed", "usage": params.get("usage")}
    response["error"] = {"code": "server_error", "message": "test provider broke"}
    await wire.start_chunks()
    await wire.chunk(event({"type": "response.output_text.delta", "delta": "Hel"}))
    await wire.chunk(event({"type": "response.failed", "response": response}))
    await wire.end_chunks()


# --- metering in strange shapes ---------------------------------------------------------------


@behaviour
async def no_usage(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """A whole answer that never reports usage, asked or not."""
    await answer(call, wire, {**params, "usage": "omit"})


async def usage_series(
    call: ReceivedCall, wire: Wire, params: dict[str, Any], early: list[object]
) -> None:
    """A stream whose content events carry the usages of `early`, the finish the real one."""
    events = [chunk_event(call, params, "part ", usage=usage) for usage in early]
    last = params.get("usage", USAGE)
    events.append(chunk_event(call, params, None, finish="stop", usage=last))
    await wire.start_chunks()
    await send_events(wire, [*events, DONE], params)
    await wire.end_chunks()


@behaviour
async def null_usage_first(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """`"usage": null` twice, then the real one."""
    await usage_series(call, wire, params, [None, None])


@behaviour
async def zero_usage_first(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """All zero in every chunk, the real one with the finish."""
    await usage_series(call, wire, params, [ZERO_USAGE] * 3)


@behaviour
async def cumulative_usage(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """Growing snapshots: 9/1, 9/2, 9/3, then 9/4."""
    snapshots = [
        {"prompt_tokens": 9, "completion_tokens": n, "total_tokens": 9 + n} for n in (1, 2, 3)
    ]
    await usage_series(call, wire, params, list(snapshots))


@behaviour
async def usage_under_response(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """A Responses stream: the usage is inside `response` of the `response.completed` event."""
    usage = params.get("usage", {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13})
    response = {"id": id_of(call, params), "status": "completed", "usage": usage}
    await wire.start_chunks()
    for kind in ("response.created", "response.in_progress"):
        await wire.chunk(event({"type": kind, "response": {**response, "usage": None}}))
    await wire.chunk(event({"type": "response.output_text.delta", "delta": "Hello"}))
    await wire.chunk(event({"type": "response.completed", "response": response}))
    await wire.end_chunks()


@behaviour
async def message_delta_usage(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """A Messages stream: 25 in and 1 out at its start, a cumulative 15 out in its delta."""
    start = params.get("start_usage", {"input_tokens": 25, "output_tokens": 1})
    last = params.get("usage", {"output_tokens": 15})
    message = {"id": id_of(call, params), "type": "message", "role": "assistant", "usage": start}
    events = [
        {"type": "message_start", "message": message},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
        {"type": "message_stop"},
    ]
    await wire.start_chunks()
    for one in events:
        await wire.chunk(b"event: " + one["type"].encode() + b"\n" + event(one))
    await wire.end_chunks()


# --- strange bytes ----------------------------------------------------------------------------


def split_inside_characters(data: bytes) -> Iterator[bytes]:
    """Cut UTF-8 before the last byte of every multi-byte character."""
    start = 0
    for at in range(1, len(data)):
        is_last = at + 1 == len(data) or data[at + 1] & 0xC0 != 0x80
        if data[at] & 0xC0 == 0x80 and is_last:
            yield data[start:at]
            start = at
    yield data[start:]


@behaviour
async def multibyte_split(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """Multi-byte characters, each cut in two between HTTP chunks."""
    params = {"text": MULTIBYTE_TEXT, "chunks": 3, "delay_ms": 2, **params}
    await wire.start_chunks("text/event-stream" if call.stream else "application/json")
    whole = stream_events(call, params) if call.stream else [completion(call, params)]
    await send_events(wire, list(split_inside_characters(b"".join(whole))), params)
    await wire.end_chunks()


@behaviour
async def huge_body(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """A text of `bytes` (default 8 MiB); streamed in events of 64 KiB."""
    size = params.get("bytes", 8 * 1024 * 1024)
    if not call.stream:
        await wire.whole(200, completion(call, {**params, "text": "y" * size}))
        return
    piece = 64 * 1024
    pieces = ["y" * min(piece, size - at) for at in range(0, size, piece)]
    await wire.start_chunks()
    for part in pieces:
        await wire.chunk(chunk_event(call, params, part))
    await send_events(wire, stream_events(call, params), params)
    await wire.end_chunks()


@behaviour
async def gzip_body(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """Compressed without being asked; `truncated=1` cuts it, `bytes` blanks make it a bomb."""
    headers = {"Content-Encoding": "gzip"}
    if call.stream:
        press = zlib.compressobj(wbits=31)
        await wire.start_chunks(headers=headers)
        for one in stream_events(call, params):
            await wire.chunk(press.compress(one) + press.flush(zlib.Z_SYNC_FLUSH))
        if not params.get("truncated"):
            await wire.chunk(press.flush())
        await wire.end_chunks()
        return
    body = completion(call, params)
    press, blanks = zlib.compressobj(wbits=31), params.get("bytes", 0)
    packed = press.compress(body[:1])
    for at in range(0, blanks, 1024 * 1024):
        packed += press.compress(b" " * min(1024 * 1024, blanks - at))
    packed += press.compress(body[1:]) + press.flush()
    assert blanks or gzip.decompress(packed) == body
    await wire.whole(
        200, packed[: len(packed) // 2] if params.get("truncated") else packed, headers
    )


@behaviour
async def raw(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """Exactly these bytes: `body` (text) or `pieces_base64` (one HTTP chunk each).

    `status`, `content_type`, `headers`; `end`: clean (default), close, rst, bad.
    """
    kind = params.get("content_type", "application/json")
    headers = {"Content-Type": kind, **params.get("headers", {})}
    if "pieces_base64" not in params:
        await wire.whole(params.get("status", 200), params.get("body", "").encode(), headers)
        return
    await wire.start_chunks(kind, params.get("status", 200), params.get("headers"))
    await send_events(wire, [base64.b64decode(p) for p in params["pieces_base64"]], params)
    await wire.finish(params.get("end", "clean"))


@behaviour
async def agent_step(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """A model that wants one call of `tool`, and is done once it has read its answer."""
    value: dict[str, Any] = {
        "id": id_of(call, params),
        "object": "chat.completion",
        "usage": USAGE,
    }
    message: dict[str, Any] = {"role": "assistant", "content": "Done."}
    has_answer = any(each.get("role") == "tool" for each in call.json.get("messages", []))
    if not has_answer:
        function = {"name": params["tool"], "arguments": '{"amount": 5}'}
        wanted = {"id": f"call_{call.sequence}", "type": "function", "function": function}
        message |= {"content": None, "tool_calls": [wanted]}
    finish = "stop" if has_answer else "tool_calls"
    value["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
    await wire.whole(200, dump(value))
