"""Request bodies are bounded in front of the framework (E5; reliability 49, 50, 68)."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import uvicorn

from kernel.api.bounded import BoundedBody, Message, Receive, Scope, Send

BOUND = 1000
SERVER_BOUND = 2**20


class Recorder:
    """An application that reads the whole body and answers 200, or sees a disconnect."""

    def __init__(self, *, answer_first: bool = False) -> None:
        self.answer_first = answer_first
        self.called = False
        self.gone = False
        self.body = b""
        self.scope: Scope = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.called, self.scope = True, scope
        if self.answer_first:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone = True
                # Whoever asks again hears the same.
                assert (await receive())["type"] == "http.disconnect"
                break
            self.body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if not self.answer_first:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"fine"})


async def ask(
    app: Any, *, headers: Sequence[tuple[bytes, bytes]] = (), pieces: Sequence[bytes] = (b"",)
) -> list[Message]:
    """One request through the bound; what was sent back."""
    messages: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces) - 1}
        for number, piece in enumerate(pieces)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": list(headers)}
    await BoundedBody(app, body_bytes_max=BOUND)(scope, receive, send)
    sent[0]["left"] = len(messages)
    return sent


def error_of(sent: list[Message]) -> dict[str, Any]:
    headers = dict(sent[0]["headers"])
    body = b"".join(one.get("body", b"") for one in sent[1:])
    assert headers[b"content-type"] == b"application/json"
    assert int(headers[b"content-length"]) == len(body)
    assert sent[-1].get("more_body", False) is False
    error = json.loads(body)["error"]
    assert error["retryable"] is False and error["message"] and error["next_action"]
    return error


async def test_a_length_over_the_bound_is_refused_before_the_application_starts() -> None:
    app = Recorder()
    sent = await ask(app, headers=[(b"content-length", b"1001")], pieces=[b"x" * 1001])
    assert (sent[0]["status"], error_of(sent)["code"]) == (413, "body_too_large")
    assert not app.called


@pytest.mark.parametrize("size", [0, 1, BOUND])
async def test_a_body_up_to_the_bound_passes_untouched(size: int) -> None:
    app = Recorder()
    sent = await ask(app, headers=[(b"content-length", b"%d" % size)], pieces=[b"x" * size])
    assert sent[0]["status"] == 200
    assert app.body == b"x" * size


async def test_a_chunked_body_is_counted_and_cut() -> None:
    app = Recorder()
    headers = [(b"transfer-encoding", b"chunked")]
    sent = await ask(app, headers=headers, pieces=[b"x" * 400] * 10)
    assert (sent[0]["status"], error_of(sent)["code"]) == (413, "body_too_large")
    assert app.gone and len(app.body) <= BOUND
    assert [one["type"] for one in sent].count("http.response.start") == 1


async def test_an_understated_length_does_not_help() -> None:
    app = Recorder()
    sent = await ask(app, headers=[(b"content-length", b"5")], pieces=[b"x" * 900] * 2)
    assert sent[0]["status"] == 413
    assert app.gone and len(app.body) <= BOUND


async def test_an_answer_that_began_is_ended_by_a_disconnect() -> None:
    app = Recorder(answer_first=True)
    sent = await ask(app, pieces=[b"x" * 400] * 10)
    assert [one.get("status") for one in sent] == [200, None]
    assert app.gone and len(app.body) <= BOUND


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-length", b"abc")],
        [(b"content-length", b"-1")],
        [(b"content-length", b"+1")],
        [(b"content-length", b"1_0")],
        [(b"content-length", b" 1")],
        [(b"content-length", b"1, 1")],
        [(b"content-length", b"")],
        [(b"content-length", "٣".encode())],
        [(b"content-length", b"1"), (b"content-length", b"2")],
        [(b"content-length", b"1"), (b"content-length", b"1")],
        [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")],
        [(b"transfer-encoding", b"gzip, chunked")],
        [(b"transfer-encoding", b"identity")],
        [(b"transfer-encoding", b"\x0bchunked\x00")],
        [(b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"chunked")],
    ],
)
async def test_unclear_framing_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    app = Recorder()
    sent = await ask(app, headers=headers)
    assert (sent[0]["status"], error_of(sent)["code"]) == (400, "bad_framing")
    assert not app.called


@pytest.mark.parametrize(
    ("digits", "status"),
    [(b"9" * 5000, 413), (b"0" * 5000 + b"5", 200), (b"1001", 413), (b"0", 200)],
)
async def test_any_number_of_digits_is_read_right(digits: bytes, status: int) -> None:
    sent = await ask(Recorder(), headers=[(b"content-length", digits)])
    assert sent[0]["status"] == status


async def test_a_header_with_an_underscore_never_reaches_the_application() -> None:
    app = Recorder()
    headers = [(b"x_real_ip", b"6.6.6.6"), (b"x-real-ip", b"1.2.3.4"), (b"content_length", b"9")]
    await ask(app, headers=headers)
    assert app.scope["headers"] == [(b"x-real-ip", b"1.2.3.4")]


async def test_a_thousand_copies_of_a_header_are_quick() -> None:
    headers = [(b"x-many", b"v" * 50)] * 1000
    began = time.perf_counter()
    await ask(Recorder(), headers=headers)
    assert time.perf_counter() - began < 0.05


async def test_other_protocols_pass() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    seen: list[str] = []
    for kind in ("lifespan", "websocket"):
        await BoundedBody(app, body_bytes_max=1)({"type": kind}, None, None)  # type: ignore[arg-type]
    assert seen == ["lifespan", "websocket"]


async def test_a_refused_body_is_read_on_for_a_while_but_not_for_ever() -> None:
    sent = await ask(Recorder(), headers=[(b"content-length", b"9999")], pieces=[b"x" * 100] * 100)
    assert sent[0]["status"] == 413
    assert 70 < sent[0]["left"] < 85


# --- behind a real server ---


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[int]:
    config = uvicorn.Config(
        BoundedBody(app, body_bytes_max=SERVER_BOUND),
        port=0,
        lifespan="off",
        log_level="critical",
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(10):
        while not server.started:
            await asyncio.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def exchange(port: int, head: bytes, body: bytes) -> bytes:
    """Write everything first, as most clients do, then read to the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + b"\r\n\r\n" + body)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.transport.abort()


async def test_a_client_that_writes_everything_first_still_reads_the_refusal() -> None:
    app = Recorder()
    async with serving(app) as port:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1500000"
        answer = await exchange(port, head, bytes(1_500_000))
    assert answer.startswith(b"HTTP/1.1 413 ") and b'"body_too_large"' in answer
    assert not app.called


async def test_a_chunked_upload_is_cut_by_a_real_server() -> None:
    app = Recorder()
    async with serving(app) as port:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked"
        body = (b"3e8\r\n" + bytes(1000) + b"\r\n") * 1500 + b"0\r\n\r\n"
        answer = await exchange(port, head, body)
    assert answer.startswith(b"HTTP/1.1 413 ") and b'"body_too_large"' in answer
    assert app.gone and len(app.body) <= SERVER_BOUND


async def test_an_upload_that_never_ends_is_cut_off() -> None:
    app = Recorder()
    async with serving(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(10):
                while True:
                    writer.write(b"3e8\r\n" + bytes(1000) + b"\r\n")
                    await writer.drain()
        writer.transport.abort()
    assert app.gone and len(app.body) <= SERVER_BOUND


async def test_a_good_request_passes_a_real_server() -> None:
    app = Recorder()
    async with serving(app) as port:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100000"
        answer = await exchange(port, head, bytes(100_000))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert app.body == bytes(100_000)
