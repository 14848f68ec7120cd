"""Hostile bytes at the real web server: refused in words, nothing admitted, it lives (E5)."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn

from console.asgi import create_application
from console.protocol import BoundedProtocol
from kernel.conf import override
from kernel.models import Job, Request
from tests.api.agents import make_route
from tests.support.fixtures import provider, provider_process, shop
from tests.support.product import look, make_token, running_kernel

__all__ = ["provider", "provider_process", "shop"]

BOUND = 64 * 1024
CHAT = b'{"model":"gpt","messages":[{"role":"user","content":"hi"}]%s}'
JOB = b'{"request_id":"r-1","route":"exports","input":%s}'
LENGTH = b"Content-Length: "


# Inside a member that only the provider reads, its bytes pass through: no reader of ours differs.
THE_PROVIDERS = (b'{"a":"\\ud800"}', b'{"a":1,"a":2}')


class Wire:
    """One address; each exchange is a connection of its own."""

    def __init__(self, port: int, token: str):
        self.port, self.token = port, token.encode()

    async def send(self, raw: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to exactly these bytes; (0, b"") when it just closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(raw)
                await writer.drain()
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                length = next(
                    (one[15:] for one in lines if one.startswith(b"content-length:")), b""
                )
                body = await reader.readexactly(int(length)) if length else b""
            return int(head.split(b" ", 2)[1]), body
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0, b""
        finally:
            writer.close()

    def head(self, path: bytes, *more: bytes, key: bytes = b"op-1") -> bytes:
        lines = (
            b"POST " + path + b" HTTP/1.1",
            b"Host: 127.0.0.1",
            b"Authorization: Bearer " + self.token,
            b"Idempotency-Key: " + key,
            b"Content-Type: application/json",
            *more,
        )
        return b"\r\n".join(lines) + b"\r\n\r\n"

    async def post(self, path: bytes, body: bytes) -> tuple[int, bytes]:
        return await self.send(self.head(path, LENGTH + str(len(body)).encode()) + body)


@pytest.fixture
async def wire(shop) -> AsyncIterator[Wire]:
    """The product behind its own protocol class, as standalone serves it; it ends unharmed."""
    async with running_kernel() as kernel:
        token = await look(kernel, lambda: make_token(scopes=("usage:write", "jobs:write")))
        await look(kernel, lambda: make_route("exports", target="executor"))
        with (
            override(request_body_bytes_max=BOUND, request_head_bytes_max=8192),
            socket.create_server(("127.0.0.1", 0)) as listener,
        ):
            config = uvicorn.Config(
                create_application(kernel),
                http=BoundedProtocol,
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
            )
            server = uvicorn.Server(config)
            task = asyncio.create_task(server.serve(sockets=[listener]))
            found = Wire(listener.getsockname()[1], token)
            yield found
            status, answer = await found.post(b"/v1/chat/completions", CHAT % b"")
            assert status == 200, answer
            assert status == 200, "after all of that an honest call is served"
            assert await look(kernel, Request.objects.count) == 1, "and it is the only one"
            assert await look(kernel, Job.objects.count) == 0
            server.should_exit = True
            await task


def code_of(body: bytes) -> str:
    return json.loads(body)["error"]["code"]


async def test_unclear_framing_is_refused(wire: Wire) -> None:
    path, body = b"/v1/chat/completions", CHAT % b""
    size = LENGTH + str(len(body)).encode()
    for more in (
        (size, size),
        (size, LENGTH + b"1"),
        (size, b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
        (b"Transfer-Encoding: gzip, chunked",),
        (LENGTH + b"+5",),
        (LENGTH + b"0x5",),
        (LENGTH + b"5, 5",),
        (LENGTH + b"-1",),
    ):
        status, _ = await wire.send(wire.head(path, *more) + body)
        assert status in (0, 400), more


async def test_too_much_is_refused_before_it_is_read(wire: Wire) -> None:
    path = b"/v1/chat/completions"
    for length in (str(BOUND + 1).encode(), b"9999999999999999"):
        status, answer = await wire.send(wire.head(path, LENGTH + length))
        assert (status, code_of(answer)) == (413, "body_too_large")
    status, _ = await wire.send(wire.head(path, LENGTH + b"9" * 40))
    assert status == 400
    status, answer = await wire.post(path, b" " * (BOUND + 1))
    assert (status, code_of(answer)) == (413, "body_too_large")
    piece = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    raw = wire.head(path, b"Transfer-Encoding: chunked") + piece * 5 + b"0\r\n\r\n"
    status, answer = await wire.send(raw)
    assert (status, code_of(answer)) == (413, "body_too_large")
    for more in (b"X-Long: " + b"a" * 20_000, b"\r\n".join(b"X-%d: a" % n for n in range(3000))):
        status, _ = await wire.send(wire.head(path, more, LENGTH + b"0"))
        assert status in (0, 431)
    status, _ = await wire.send(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status in (0, 400, 431)


async def test_a_slow_body_is_ended(wire: Wire) -> None:
    with override(request_body_seconds=1):
        status, _ = await wire.send(
            wire.head(b"/v1/chat/completions", LENGTH + b"500") + b'{"model":'
        )
    assert status == 408


@pytest.mark.parametrize(
    "hostile",
    [
        b"[" * 20_000 + b"]" * 20_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1e999}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xff\xfe"}',
        b'{"a":1,"a":2}',
        b'{"a":' + b"9" * 10_000 + b"}",
        b"{",
        b"",
        b"\x00",
        b'{"a":1}{"b":2}',
        b"\xef\xbb\xbf{}",
    ],
    ids=lambda hostile: repr(hostile[:16]),
)
async def test_what_is_no_plain_json_is_refused_at_every_door(wire: Wire, hostile: bytes) -> None:
    for path, body in (
        (b"/v1/jobs", JOB % hostile),
        (b"/v1/jobs", hostile),
        *(
            [(b"/v1/chat/completions", CHAT % (b',"x":' + hostile))]
            if hostile not in THE_PROVIDERS
            else []
        ),
        (b"/v1/chat/completions", hostile),
        (b"/usage/v1/requests", hostile),
    ):
        status, answer = await wire.post(path, body)
        assert status in (400, 413, 422), (path, status, answer)
        assert code_of(answer) not in ("", "internal")


async def test_an_id_is_no_place_for_anything_else(wire: Wire) -> None:
    for key in (b"a b", b"job:1:1", b"x" * 129, b"\xe9", b"a\x00b", b"../../etc/passwd", b"%00"):
        raw = CHAT % b""
        head = wire.head(b"/v1/chat/completions", LENGTH + str(len(raw)).encode(), key=key)
        status, _ = await wire.send(head + raw)
        assert status in (0, 400, 422), key
    for path in (b"/v1/jobs/%00", b"/v1/jobs/..%2f..%2fetc", b"/usage/v1/requests/%ff/cancel"):
        status, _ = await wire.post(path, b"{}")
        assert status in (400, 403, 404, 405), path
