"""A request is bounded in its head and in the time it takes to come, before anything reads it."""

import asyncio
import contextlib
from typing import Any

import pytest
import uvicorn

from console.protocol import BoundedProtocol
from kernel.conf import conf, override


async def hello(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def slow_hello(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body at once and answers after both deadlines of a hurried request."""
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(1)
    headers = [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


@contextlib.asynccontextmanager
async def served(app: Any = hello):
    config = uvicorn.Config(
        app, port=0, http=BoundedProtocol, lifespan="off", log_config=None, loop="none"
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await task


async def exchange(port: int, *parts: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
    answer = b""
    with contextlib.suppress(ConnectionError):
        answer = await asyncio.wait_for(reader.read(65536), 10)
    writer.close()
    return answer


@pytest.mark.parametrize("ending", [b"", b"\r\n\r\n"], ids=["unfinished", "finished"])
async def test_a_head_over_the_bound_is_refused_and_the_connection_closed(ending: bytes) -> None:
    async with served() as port:
        long = b"b" * (conf.request_head_bytes_max * 2)
        start = b"GET / HTTP/1.1\r\nHost: x\r\nX-A: "
        pieces = [long[at : at + 16384] for at in range(0, len(long), 16384)]
        answer = await exchange(port, start, *pieces, ending)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
        assert b"hello" not in answer


async def test_a_head_within_the_bound_and_a_body_beyond_it_pass() -> None:
    body = b"x" * 200_000
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    async with served() as port:
        answer = await exchange(port, head % len(body) + body)
        assert answer.startswith(b"HTTP/1.1 200 ")


async def test_each_request_of_a_kept_connection_has_its_own_bound() -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 1500 + b"\r\n\r\n"
    with override(request_head_bytes_max=2048):
        async with served() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(3):
                writer.write(request)
                answer = await asyncio.wait_for(reader.readuntil(b"hello"), 10)
                assert b"200 OK" in answer
                if b"chunked" in answer:
                    await reader.readuntil(b"0\r\n\r\n")
            writer.close()


# --- slow requests ----------------------------------------------------------------------------

HALF_A_HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nX-A: "
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
HURRY = {"request_head_seconds": 0.3, "request_body_seconds": 0.3}


async def answer_to_drops(port: int, start: bytes, drop: bytes = b"") -> bytes:
    """Send `start`, then a drop now and then; what comes back until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def drip() -> None:
        while drop:
            writer.write(drop)
            await asyncio.sleep(0.05)

    writer.write(start)
    dripping = asyncio.create_task(drip())
    answer = b""
    with contextlib.suppress(ConnectionError):
        answer = await asyncio.wait_for(reader.read(), 10)
    dripping.cancel()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("start", "drop"),
    [(HALF_A_HEAD, b""), (HALF_A_HEAD, b"a"), (HEAD, b""), (HEAD, b"b"), (HEAD + b"half", b"")],
    ids=["half a head", "head in drops", "no body", "body in drops", "half a body"],
)
async def test_a_request_that_is_too_slow_in_coming_is_ended(start: bytes, drop: bytes) -> None:
    with override(**HURRY):
        async with served() as port:
            answer = await answer_to_drops(port, start, drop)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"hello" not in answer


async def test_a_connection_that_says_nothing_is_closed() -> None:
    with override(**HURRY):
        async with served() as port:
            assert await answer_to_drops(port, b"") == b""


async def test_a_slow_answer_is_not_cut_and_a_kept_connection_starts_anew() -> None:
    with override(**HURRY):
        async with served(slow_hello) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(2):
                writer.write(HEAD + b"0123456789")
                answer = await asyncio.wait_for(reader.readuntil(b"hello"), 10)
                assert answer.startswith(b"HTTP/1.1 200 ")
            writer.close()


async def test_half_a_next_head_does_not_cut_the_answer_that_is_on_its_way() -> None:
    with override(**HURRY):
        async with served(slow_hello) as port:
            answer = await answer_to_drops(port, HEAD + b"0123456789" + HALF_A_HEAD)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.index(b"hello") < answer.index(b"HTTP/1.1 408 ")


async def test_a_body_that_we_do_not_read_yet_is_not_called_slow() -> None:
    async def late_reader(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(1)
        await hello(scope, receive, send)

    size = 1_000_000
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size
    with override(**HURRY):
        async with served(late_reader) as port:
            answer = await answer_to_drops(port, head + b"x" * size)
    assert answer.startswith(b"HTTP/1.1 200 ")
