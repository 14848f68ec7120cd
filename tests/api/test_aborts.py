"""500 clients abort: everything is saved and settled, and nothing stays open (A10)."""

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import psutil
import pytest
from django.db import connection

from kernel.models import LedgerRow, Request
from tests.api.conftest import Api
from tests.support.product import CHAT, assert_invariants, chat_body
from tests.support.wait import NotInTime, wait_until_async

CLIENTS, JUST_SENT, HALF_SENT, AT_ONCE = 500, 100, 25, 150
WAYS = ("FIN", "RST")
# Moment of leaving -> what the provider does meanwhile.
PLAIN = {"called": "hold", "answering": "answer"}
STREAMED = {"called": "hold", "midway": "stream_hold_midway:events=2"}
ENOUGH_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Leaving:
    """One client: what it asks, when and how it leaves."""

    name: str
    stream: bool
    moment: str
    behaviour: str
    way: str

    @property
    def body(self) -> bytes:
        metadata = {"behaviour": self.behaviour}
        return chat_body(marker=self.name, stream=self.stream, metadata=metadata)

    def request(self, token: str) -> bytes:
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
            f"Idempotency-Key: {self.name}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(self.body)}\r\n\r\n"
        )
        return head.encode() + self.body


def all_kinds() -> list[Leaving]:
    """Every stream x moment x way, again and again."""
    kinds = [
        (stream, moment, behaviour, way)
        for stream, moments in ((False, PLAIN), (True, STREAMED))
        for moment, behaviour in moments.items()
        for way in WAYS
    ]
    cycle = itertools.islice(itertools.cycle(kinds), CLIENTS)
    return [Leaving(f"op-{number}", *kind) for number, kind in enumerate(cycle)]


def just_sent() -> list[Leaving]:
    """Who leaves with the last byte: whether it was heard is decided by the network."""
    kinds = itertools.cycle(itertools.product((False, True), WAYS))
    return [
        Leaving(f"sent-{number}", stream, "sent", "answer", way)
        for number, (stream, way) in zip(range(JUST_SENT), kinds, strict=False)
    ]


class Calls:
    """The operations the provider has received, read from its file now and then."""

    def __init__(self, web: Api):
        self._web, self.seen = web, set[str]()

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        async def watch() -> None:
            while True:
                self.seen = {call.marker for call in self._web.provider.calls()}
                await asyncio.sleep(0.2)

        watching = asyncio.create_task(watch())
        yield
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@contextlib.asynccontextmanager
async def connected(port: int, way: str) -> AsyncIterator[socket.socket]:
    """A socket that ends with a FIN, or with a RST: what was not read is thrown away."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        yield client
        if way == "RST":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def abort(web: Api, who: Leaving, calls: Calls) -> None:
    """Ask, and leave at the client's moment."""
    loop = asyncio.get_running_loop()
    async with connected(web.client.base_url.port or 0, who.way) as client:
        await loop.sock_sendall(client, who.request(web.token))
        if who.moment == "called":
            await wait_until_async(
                lambda: who.name in calls.seen, ENOUGH_SECONDS, look_every=0.05, about=who.name
            )
        elif who.moment == "answering":
            assert await loop.sock_recv(client, 1) == b"H"
        elif who.moment == "midway":
            heard = b""
            while b"data:" not in heard:
                piece = await loop.sock_recv(client, 4096)
                assert piece, heard
                heard += piece


async def leave_half_sent(web: Api, number: int) -> None:
    """Leave before the request is whole."""
    loop = asyncio.get_running_loop()
    who = Leaving(f"half-{number}", False, "half", "answer", WAYS[number % 2])
    async with connected(web.client.base_url.port or 0, who.way) as client:
        await loop.sock_sendall(client, who.request(web.token)[:-10])


def sessions() -> int:
    """Sessions of the database server on this run's schema."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE()")
        return int(cursor.fetchone()[0])


async def footprint(web: Api) -> dict[str, int]:
    """What this process has open, but for provider connections kept for reuse."""
    return {
        "files": psutil.Process().num_fds() - web.kernel.door.idle,
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
        "sessions": await web.look(sessions),
    }


async def warm_up(web: Api) -> None:
    """Bring up every thread, session and pool that traffic brings up anyway."""
    await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.05) for _ in range(64)))
    for stream in (False, True):
        await asyncio.gather(*(web.chat(f"warm-{n}-{stream}", stream=stream) for n in range(16)))
    await web.settled()
    await web.client.aclose()


async def test_500_clients_that_abort_leave_everything_settled_and_nothing_open(
    server_db: None, web: Api
) -> None:
    await warm_up(web)
    charged = await web.look(LedgerRow.objects.count)
    before = await footprint(web)
    clients, calls, slots = all_kinds(), Calls(web), asyncio.Semaphore(AT_ONCE)

    async def one(who: Leaving) -> None:
        async with slots:
            await abort(web, who, calls)

    async with calls.watched():
        await asyncio.gather(
            *(one(who) for who in [*clients, *just_sent()]),
            *(leave_half_sent(web, number) for number in range(HALF_SENT)),
        )
    web.provider.release()
    await back_to(before, web)

    rows = await web.look(requests)
    assert set(rows.values()) == {("complete", "settled")}
    firm = {who.name for who in clients}
    heard = {who.name for who in just_sent()} & rows.keys()
    assert rows.keys() - {name for name in rows if name.startswith("warm")} == firm | heard
    assert await web.look(LedgerRow.objects.count) == charged + CLIENTS + len(heard)
    received = [call.marker for call in web.provider.calls()]
    assert sorted(received) == sorted(rows), "each was sent once"
    await web.look(assert_invariants)
    assert web.kernel.door.busy == 0


def requests() -> dict[str, tuple[str, str]]:
    """Operation id -> result and billing."""
    found = Request.objects.values_list("operation_id", "result_state", "billing_state")
    return {name: (result, billing) for name, result, billing in found}


async def back_to(before: dict[str, int], web: Api) -> None:
    now: dict[str, int] = {}

    async def is_back() -> bool:
        now.update(await footprint(web))
        return all(now[name] <= before[name] for name in before)

    try:
        await wait_until_async(is_back, ENOUGH_SECONDS, look_every=0.2)
    except NotInTime:
        pytest.fail(f"{now} is more than {before}")
