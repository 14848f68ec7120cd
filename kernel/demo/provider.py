"""The demo provider: an OpenAI-compatible server in its own process. No model, no faults.

Answers `POST /v1/chat/completions` (plain and streaming), `GET /v1/models` and `GET /healthz` on a
loopback address, and the demo's business service (kernel/demo/business.py): `/refunds` and
`/inbox`. Any bearer key, or none, is accepted. Faults live in tests/support/provider.py.
"""

import argparse
import asyncio
import itertools
import json
import os
import resource
import secrets
import select
import signal
import socket
import sys
import threading
import time
from types import FrameType
from typing import Any

import uvicorn

from kernel.demo import answers
from kernel.demo.business import Inbox, Refunds
from kernel.demo.launcher import MODEL, READY_LINE

BODY_BYTES_MAX = 16 * 1024 * 1024
BACKLOG_CONNECTIONS = 2048
KEEP_ALIVE_SECONDS = 75
WORDS_PER_EVENT = 4
PARENT_LOOK_SECONDS = 1.0
_JSON = (b"content-type", b"application/json")
_SSE = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]
_DUMPS = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class DemoApp:
    """The ASGI application. `latency_ms` is waited before an answer, `chunk_ms` before an event."""

    def __init__(self, *, latency_ms: float = 0, chunk_ms: float = 0):
        self._latency_seconds = latency_ms / 1000
        self._chunk_seconds = chunk_ms / 1000
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._started = int(time.time())
        self._refunds, self._inbox = Refunds(), Inbox()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        route = (scope.get("method"), scope.get("path"))
        if route == ("POST", "/v1/chat/completions"):
            await self._chat(receive, send)
        elif route == ("GET", "/v1/models"):
            row = {"id": MODEL, "object": "model", "created": self._started, "owned_by": "demo"}
            await _reply(send, 200, {"object": "list", "data": [row]})
        elif route == ("POST", "/refunds"):
            await self._refund(scope, receive, send)
        elif route == ("GET", "/refunds"):
            await _reply(send, *self._refunds.listed())
        elif route == ("POST", "/inbox"):
            await self._notified(scope, receive, send)
        elif route == ("PUT", "/inbox"):
            await _reply(send, *self._inbox.open())
        elif route == ("GET", "/inbox"):
            await _reply(send, *self._inbox.listed())
        elif route == ("GET", "/healthz"):
            await _reply(send, 200, {"status": "ok"})
        else:
            await _refuse(send, 404, "the demo provider has no such path")

    async def _refund(self, scope: Any, receive: Any, send: Any) -> None:
        body = await _read_body(receive)
        if body is None:
            await _refuse(send, 413, f"a body may have {BODY_BYTES_MAX} bytes")
            return
        key = dict(scope["headers"]).get(b"idempotency-key", b"").decode("latin-1")
        await _reply(send, *self._refunds.make(key=key, body=body))

    async def _notified(self, scope: Any, receive: Any, send: Any) -> None:
        body = await _read_body(receive)
        if body is None:
            await _refuse(send, 413, f"a body may have {BODY_BYTES_MAX} bytes")
            return
        message_id = dict(scope["headers"]).get(b"webhook-id", b"").decode("latin-1")
        await _reply(send, *self._inbox.take(message_id=message_id, body=body))

    async def _chat(self, receive: Any, send: Any) -> None:
        body = await _read_body(receive)
        if body is None:
            await _refuse(send, 413, f"a body may have {BODY_BYTES_MAX} bytes")
            return
        try:
            asked = _parse(body)
        except answers.BadRequest as error:
            await _refuse(send, 400, str(error))
            return
        if self._latency_seconds:
            await asyncio.sleep(self._latency_seconds)
        messages = asked["messages"]
        streamed = bool(asked.get("stream"))
        call = None if streamed else answers.wanted_call(asked)
        whole = None if streamed else answers.after_call(messages)
        whole = whole or (_DUMPS(call) if call else answers.answer(messages))
        text, completion, finish = answers.cut(whole, None if call else _tokens_max(asked))
        prompt = answers.prompt_tokens(messages)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }
        number = f"{self._prefix}{next(self._numbers):08x}"
        base = {
            "id": f"chatcmpl-demo-{number}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": asked["model"],
        }
        request_id = (b"x-request-id", f"req-demo-{number}".encode())
        if streamed:
            options = asked.get("stream_options")
            wants_usage = isinstance(options, dict) and options.get("include_usage") is True
            events = _events(base, text, finish, usage if wants_usage else None)
            await self._stream(receive, send, request_id, events)
            return
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if call:
            function = {"name": answers.TOOL, "arguments": text}
            one = {"id": f"call-demo-{number}", "type": "function", "function": function}
            message, finish = (
                {"role": "assistant", "content": None, "tool_calls": [one]},
                "tool_calls",
            )
        choice = {"index": 0, "message": message, "finish_reason": finish}
        await _reply(send, 200, {**base, "choices": [choice], "usage": usage}, request_id)

    async def _stream(
        self, receive: Any, send: Any, request_id: tuple[bytes, bytes], events: list[bytes]
    ) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": [*_SSE, request_id]}
        await send(start)
        leaving = asyncio.ensure_future(receive()) if self._chunk_seconds else None
        try:
            for event in events:
                if leaving is not None:
                    if leaving.done():
                        return
                    await asyncio.sleep(self._chunk_seconds)
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if leaving is not None:
                leaving.cancel()


def _events(base: dict, text: str, finish: str, usage: dict | None) -> list[bytes]:
    """Every SSE event of a streamed answer, in order; `usage` adds OpenAI's extra last chunk."""
    base = {**base, "object": "chat.completion.chunk"}
    extra = {} if usage is None else {"usage": None}

    def event(delta: dict, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return f"data: {_DUMPS({**base, 'choices': [choice], **extra})}\n\n".encode()

    parts = answers.words(text)
    events = [event({"role": "assistant", "content": ""})]
    for start in range(0, len(parts), WORDS_PER_EVENT):
        events.append(event({"content": "".join(parts[start : start + WORDS_PER_EVENT])}))
    events.append(event({}, finish))
    if usage is not None:
        events.append(f"data: {_DUMPS({**base, 'choices': [], 'usage': usage})}\n\n".encode())
    events.append(b"data: [DONE]\n\n")
    return events


def _parse(body: bytes) -> dict:
    try:
        asked = json.loads(body)
    except ValueError:
        raise answers.BadRequest("the body is not JSON") from None
    if not isinstance(asked, dict) or not isinstance(asked.get("model"), str):
        raise answers.BadRequest("model must be a string")
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise answers.BadRequest("messages must be a list with at least one message")
    for message in messages:
        answers.message_text(message)
    if asked.get("n") not in (None, 1):
        raise answers.BadRequest("n must be 1")
    _tokens_max(asked)
    return asked


def _tokens_max(asked: dict) -> int | None:
    limit = asked.get("max_completion_tokens", asked.get("max_tokens"))
    if limit is not None and (type(limit) is not int or limit < 1):
        raise answers.BadRequest("max_tokens must be a whole number above 0")
    return limit


async def _read_body(receive: Any) -> bytes | None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            return None
        if not message.get("more_body"):
            return body


async def _reply(send: Any, status: int, value: dict, *headers: tuple[bytes, bytes]) -> None:
    body = _DUMPS(value).encode("utf-8", "replace")
    length = (b"content-length", str(len(body)).encode())
    start = {"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def _refuse(send: Any, status: int, text: str) -> None:
    await _reply(send, status, {"error": {"message": text, "type": "invalid_request_error"}})


class _Server(uvicorn.Server):
    """Says when it is ready; lets a parent decide about Ctrl-C, which a terminal sends to both."""

    follows_parent = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        sys.stdout.write(f"{READY_LINE}http://127.0.0.1:{port}\n")
        sys.stdout.flush()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not (self.follows_parent and sig == signal.SIGINT):
            super().handle_exit(sig, frame)


def _end_with_parent(parent: int) -> None:
    """Ends this process at once when the parent's pipe closes or this process is adopted."""
    while True:
        readable, _, _ = select.select([0], [], [], PARENT_LOOK_SECONDS)
        if (readable and os.read(0, 4096) == b"") or os.getppid() != parent:
            os._exit(0)


def main(arguments: list[str] | None = None) -> int:
    """Run the server until it is told to stop. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m kernel.demo", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free port")
    parser.add_argument("--latency-ms", type=float, default=0, help="wait before each answer")
    parser.add_argument("--chunk-ms", type=float, default=0, help="wait before each stream event")
    parser.add_argument(
        "--exit-with-parent", action="store_true", help="end when standard input is closed"
    )
    options = parser.parse_args(arguments)
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    server = _Server(
        uvicorn.Config(
            DemoApp(latency_ms=options.latency_ms, chunk_ms=options.chunk_ms),
            host="127.0.0.1",
            port=options.port,
            backlog=BACKLOG_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
            lifespan="off",
            ws="none",
            access_log=False,
            log_level="warning",
            server_header=False,
            date_header=False,
        )
    )
    if options.exit_with_parent:
        server.follows_parent = True
        watch = threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True)
        watch.start()
    server.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
