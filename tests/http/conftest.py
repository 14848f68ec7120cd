"""Fixtures of the door's tests: a hostile peer, and a door over each connection layer."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from kernel.http import AddressPolicy, Answer, Door, read_body
from kernel.http.client import STACKS
from tests.support.hostile_peer import HostilePeer

ANYWHERE = AddressPolicy(allow_private=True)
Call = Callable[..., AbstractAsyncContextManager[Answer]]


@pytest.fixture(params=sorted(STACKS))
def stack(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def peer() -> AsyncIterator[HostilePeer]:
    async with HostilePeer() as running:
        yield running


@pytest.fixture
async def door(stack: str) -> AsyncIterator[Door]:
    one = Door(stack=stack)
    yield one
    await one.aclose()


def calling(door: Door) -> Call:
    """`door.call` with the usual arguments filled in."""
    return functools.partial(
        door.call,
        method="POST",
        content=b"{}",
        policy=ANYWHERE,
        deadline_seconds=10,
        read_seconds=5,
        connect_seconds=5,
    )


@pytest.fixture
def call(door: Door) -> Call:
    return calling(door)


async def whole(call: Call, url: str, *, body_bytes_max: int = 2**20, **kwargs: object) -> bytes:
    """One call, the whole body."""
    async with call(url=url, **kwargs) as answer:
        return await read_body(answer, body_bytes_max=body_bytes_max)


async def until_stale(door: Door) -> None:
    """Wait until the peer's FIN has arrived on the idle connection."""
    async with asyncio.timeout(5):
        while not door._idle[0].wire._ended:
            await asyncio.sleep(0.001)
