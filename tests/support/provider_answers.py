"""What the test provider does with a call: whole answers, silence, broken connections.

Each behaviour is one function; those with strange content are in provider_oddities.py.
A behaviour gets the call, the wire and its parameters (`dict`). Parameters that most understand:
`latency_ms`, `chunks` (content events), `delay_ms` (before each event), `text`, `id`, `usage` (any
JSON, as the provider would report it). Others are named at the behaviour that reads them.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.provider_wire import ReceivedCall, Wire

USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
_UNSET = object()

Behaviour = Callable[[ReceivedCall, Wire, dict[str, Any]], Awaitable[None]]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS[function.__name__] = function
    return function


def find(name: str) -> tuple[Behaviour, dict[str, Any]] | None:
    """`name` or `name:key=value,key=value` -> behaviour and parameters, None when unknown."""
    name, _, text = name.partition(":")
    params: dict[str, Any] = {}
    for pair in filter(None, text.split(",")):
        key, _, value = pair.partition("=")
        params[key] = int(value) if value.lstrip("-").isdigit() else value
    if name.startswith("status_") and name[7:].isdigit():
        name, params = "status", {"status": int(name[7:]), **params}
    found = BEHAVIOURS.get(name)
    return None if found is None else (found, params)


# --- the good answers -------------------------------------------------------------------------


def text_of(call: ReceivedCall, params: dict[str, Any]) -> str:
    return params.get("text", f"This is answer {call.sequence} of the test provider.")


def id_of(call: ReceivedCall, params: dict[str, Any]) -> str:
    return params.get("id", f"chatcmpl-test-{call.sequence}")


def dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def completion(call: ReceivedCall, params: dict[str, Any]) -> bytes:
    """A plain chat completion; `usage` absent -> the standard one, `"omit"` -> no such key."""
    message = {"role": "assistant", "content": text_of(call, params)}
    value = {
        "id": id_of(call, params),
        "object": "chat.completion",
        "created": 1700000000,
        "model": call.model or "test-model",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": params.get("usage", USAGE),
        **params.get("extra", {}),
    }
    if value["usage"] == "omit":
        del value["usage"]
    return dump(value)


def event(value: object) -> bytes:
    return b"data: " + dump(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chunk_event(
    call: ReceivedCall,
    params: dict[str, Any],
    content: str | None,
    *,
    finish: str | None = None,
    usage: object = _UNSET,
) -> bytes:
    delta = {} if content is None else {"content": content}
    value = {
        "id": id_of(call, params),
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": call.model or "test-model",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **params.get("extra", {}),
    }
    if usage is not _UNSET:
        value["usage"] = usage
    return event(value)


def contents(call: ReceivedCall, params: dict[str, Any]) -> list[str]:
    """The text cut into `chunks` pieces (default 5); more pieces than letters: "x" each."""
    text, count = text_of(call, params), int(params.get("chunks", 5))
    if count > len(text):
        return ["x"] * count
    size = len(text) // count
    return [text[i * size : (i + 1) * size if i < count - 1 else None] for i in range(count)]


def stream_events(call: ReceivedCall, params: dict[str, Any]) -> list[bytes]:
    """A whole OpenAI stream; the usage chunk comes when asked for, or when `usage` is given."""
    events = [chunk_event(call, params, part) for part in contents(call, params)]
    events.append(chunk_event(call, params, None, finish="stop"))
    if params.get("usage") != "omit" and (call.wants_usage or "usage" in params):
        usage = {"id": id_of(call, params), "object": "chat.completion.chunk", "choices": []}
        events.append(event({**usage, "usage": params.get("usage", USAGE)}))
    return [*events, DONE]


async def send_events(wire: Wire, events: list[bytes], params: dict[str, Any]) -> None:
    delay = params.get("delay_ms", 0) / 1000
    for one in events:
        if delay:
            await asyncio.sleep(delay)
        await wire.chunk(one)


@behaviour
async def answer(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """Plain or streaming, as asked."""
    if call.stream:
        await stream(call, wire, params)
    else:
        await wire.whole(200, completion(call, params))


@behaviour
async def stream(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """A stream, asked for or not."""
    await wire.start_chunks()
    await send_events(wire, stream_events(call, params), params)
    await wire.end_chunks()


@behaviour
async def slow_drip(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """`chunks` pieces (default 20), one each `delay_ms` (default 50); a plain body drips too."""
    params = {"chunks": 20, "delay_ms": 50, **params}
    if call.stream:
        await stream(call, wire, params)
        return
    body = completion(call, params)
    await wire.head(200, {"Content-Length": str(len(body))})
    size = max(1, -(-len(body) // params["chunks"]))
    for start in range(0, len(body), size):
        await asyncio.sleep(params["delay_ms"] / 1000)
        await wire.send(body[start : start + size])


# --- silence and broken connections -----------------------------------------------------------


@behaviour
async def hang(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """Received, never answered; ends when the caller leaves."""
    await wire.wait_for_peer_to_leave()


@behaviour
async def hold(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """Received, answered when released."""
    await wire.wait_for(call.release)
    await answer(call, wire, params)


@behaviour
async def stream_hang_midway(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """`events` (default 3) of the stream, then silence until the caller leaves."""
    await wire.start_chunks()
    await send_events(wire, stream_events(call, params)[: params.get("events", 3)], params)
    await wire.wait_for_peer_to_leave()


@behaviour
async def stream_hold_midway(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """`events` (default 3) of the stream, the rest when released."""
    events, first = stream_events(call, params), params.get("events", 3)
    await wire.start_chunks()
    await send_events(wire, events[:first], params)
    await wire.wait_for(call.release)
    await send_events(wire, events[first:], params)
    await wire.end_chunks()


@behaviour
async def close(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """Closed, nothing sent."""
    wire.close()


@behaviour
async def rst(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """A TCP reset instead of an answer."""
    wire.reset()


@behaviour
async def garbage(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """Bytes that are not HTTP."""
    await wire.send(b"\x00\x01 this is not HTTP\r\n\r\n")
    wire.close()


@behaviour
async def truncate_body(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """Content-Length promises all, half comes, then the end (`rst=1`: a reset)."""
    body = completion(call, params)
    await wire.head(200, {"Content-Length": str(len(body))})
    await wire.send(body[: len(body) // 2])
    await wire.finish("rst" if params.get("rst") else "close")


@behaviour
async def truncate_sse(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """`events` (default 3), then the end without a last chunk (`rst=1`: a reset)."""
    await wire.start_chunks()
    await send_events(wire, stream_events(call, params)[: params.get("events", 3)], params)
    await wire.finish("rst" if params.get("rst") else "close")


@behaviour
async def truncate_sse_clean(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """`events` (default 3), then a well-formed HTTP end: no terminal event was ever sent."""
    await wire.start_chunks()
    await send_events(wire, stream_events(call, params)[: params.get("events", 3)], params)
    await wire.end_chunks()


@behaviour
async def bad_chunk_end(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """Everything, the terminal event too, then a bad chunk end (`end=close`: no end at all)."""
    await wire.start_chunks("text/event-stream" if call.stream else "application/json")
    whole = stream_events(call, params) if call.stream else [completion(call, params)]
    await send_events(wire, whole, params)
    await wire.finish(params.get("end", "bad"))


@behaviour
async def close_delimited(call: ReceivedCall, wire: Wire, params: dict[str, Any]) -> None:
    """A body whose end is the end of the connection; `truncated=1`: half of it."""
    body = b"".join(stream_events(call, params)) if call.stream else completion(call, params)
    kind = "text/event-stream" if call.stream else "application/json"
    await wire.head(200, {"Content-Type": kind, "Connection": "close"})
    await wire.send(body[: len(body) // 2] if params.get("truncated") else body)
    wire.close()
