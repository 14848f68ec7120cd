"""A request's head is bounded before anything reads it."""

import asyncio
import contextlib
from typing import Any

import pytest
import uvicorn

from console.protocol import BoundedHeadProtocol
from kernel.conf import conf, override


async def hello(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@contextlib.asynccontextmanager
async def served():
    config = uvicorn.Config(
        hello, port=0, http=BoundedHeadProtocol, lifespan="off", log_config=None, loop="none"
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
