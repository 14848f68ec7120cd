"""Cancelled calls leak nothing; a thousand streams may be open at once (reliability 1-5)."""

import asyncio
import contextlib
import random
import resource
from collections.abc import Iterator

import psutil
import pytest
import uvloop

from kernel.http import Door
from tests.http.conftest import Call, calling, whole
from tests.support.hostile_peer import HostilePeer


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """A thousand connections have two thousand ends in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def sockets_to(port: int) -> int:
    """Client sockets of this process towards that port that the kernel still counts as ours."""
    found = psutil.Process().net_connections("tcp")
    return sum(one.raddr.port == port for one in found if one.raddr and one.status != "NONE")


async def until_no_socket_to(port: int) -> None:
    async with asyncio.timeout(5):
        while sockets_to(port):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("connections_max", [10, 2000])
async def test_after_a_thousand_cancelled_calls_fresh_ones_succeed(
    stack: str, peer: HostilePeer, connections_max: int
) -> None:
    door = Door(stack=stack, connections_max=connections_max, slot_seconds=5)
    call = calling(door)
    chance = random.Random(7)
    names = ["ok", "hang", "hang_after_head", "drip", "chunked", "close_says_so"]
    for _ in range(50):
        tasks = [
            asyncio.create_task(whole(call, peer.url(chance.choice(names)))) for _ in range(20)
        ]
        for task in tasks:
            # Cancelled anywhere: waiting for a slot, connecting, writing, reading, closing.
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, bytes | asyncio.CancelledError) for one in results), results
    assert door.busy == 0
    answers = await asyncio.gather(*(whole(call, peer.url("ok")) for _ in range(10)))
    assert answers == [b"xx"] * 10
    assert door.busy == 0
    await door.aclose()
    await until_no_socket_to(peer.port)


async def test_cancelling_a_call_twice_still_lets_go_of_the_connection(
    call: Call, door: Door, peer: HostilePeer
) -> None:
    task = asyncio.create_task(whole(call, peer.url("hang_after_head")))
    while not peer.received["hang_after_head"]:
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert door.busy == 0
    await until_no_socket_to(peer.port)


async def test_a_cancelled_download_gives_its_connection_up(
    call: Call, door: Door, peer: HostilePeer
) -> None:
    began = asyncio.Event()

    async def download() -> None:
        async with call(url=peer.url("endless")) as answer:
            async for _ in answer.chunks(body_bytes_max=10**12):
                began.set()

    task = asyncio.create_task(download())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (door.busy, door.idle) == (0, 0)
    await until_no_socket_to(peer.port)


async def test_an_error_in_the_callers_block_gives_the_connection_up(
    call: Call, door: Door, peer: HostilePeer
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with call(url=peer.url("endless")) as answer:
            async for _ in answer.chunks(body_bytes_max=10**12):
                raise ZeroDivisionError
    assert (door.busy, door.idle) == (0, 0)
    await until_no_socket_to(peer.port)


async def test_closing_an_answer_ends_the_task_that_reads_it(
    call: Call, door: Door, peer: HostilePeer
) -> None:
    async def read() -> None:
        async for _ in answer.chunks(body_bytes_max=100):
            pass

    async with call(url=peer.url("stream_until_told")) as answer:
        reader = asyncio.create_task(read())
        await asyncio.sleep(0.01)
        await answer.close()
        with pytest.raises(Exception, match="connection"):
            await reader
    assert door.busy == 0


async def open_a_thousand(stack: str) -> None:
    async with HostilePeer() as peer:
        door = Door(stack=stack)
        call = calling(door)
        everyone_is_in = asyncio.Event()
        opened = 0

        async def stream() -> bytes:
            nonlocal opened
            async with call(
                url=peer.url("stream_until_told"),
                # One loop serves both sides of a thousand connects: on a busy machine that takes.
                connect_seconds=60,
                deadline_seconds=120,
                read_seconds=60,
            ) as answer:
                first = await anext(answer.chunks(body_bytes_max=100))
                opened += 1
                if opened == 1000:
                    everyone_is_in.set()
                await everyone_is_in.wait()
                assert door.busy == 1000
                await asyncio.sleep(0)
                return first

        tasks = [asyncio.create_task(stream()) for _ in range(1000)]
        async with asyncio.timeout(60):
            await everyone_is_in.wait()
        assert door.busy == 1000
        assert set(await asyncio.gather(*tasks, return_exceptions=True)) <= {b"first"}
        assert (door.busy, door.idle, peer.received["stream_until_told"]) == (0, 0, 1000)
        await door.aclose()


async def test_a_thousand_streams_are_open_at_once(stack: str) -> None:
    await open_a_thousand(stack)


def test_a_thousand_streams_are_open_at_once_on_uvloop(stack: str) -> None:
    uvloop.run(open_a_thousand(stack))
