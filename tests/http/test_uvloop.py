"""The production event loop: the same answers, losses and time limits as on asyncio's own."""

from collections.abc import Awaitable, Callable

import pytest
import uvloop

from kernel.errors import BodyBroken, NotSent, OutcomeUnknown
from kernel.http import Door
from tests.http.conftest import Call, calling, until_stale, whole
from tests.support.hostile_peer import HostilePeer

Check = Callable[[Call, Door, HostilePeer], Awaitable[None]]


def on_uvloop(stack: str, check: Check) -> None:
    async def main() -> None:
        async with HostilePeer() as peer:
            door = Door(stack=stack)
            await check(calling(door), door, peer)
            await door.aclose()

    uvloop.run(main())


def test_a_connection_is_kept_and_a_closed_one_replaced(stack: str) -> None:
    async def check(call: Call, door: Door, peer: HostilePeer) -> None:
        for _ in range(5):
            assert await whole(call, peer.url("ok")) == b"xx"
        assert (peer.connections, door.idle) == (1, 1)
        assert await whole(call, peer.url("keep_then_close", after_ms=20)) == b"ok"
        await until_stale(door)
        assert await whole(call, peer.url("ok")) == b"xx"
        assert peer.received == {"ok": 6, "keep_then_close": 1}

    on_uvloop(stack, check)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hang", "silence"),
        ("drip", "deadline"),
        ("reset_after_request", "connection_lost"),
        ("two_lengths", "bad_response"),
    ],
)
def test_an_unknown_outcome_is_called_so(stack: str, name: str, reason: str) -> None:
    async def check(call: Call, door: Door, peer: HostilePeer) -> None:
        with pytest.raises(OutcomeUnknown) as unknown:
            await whole(call, peer.url(name), read_seconds=0.2, deadline_seconds=0.5)
        assert unknown.value.details["reason"] == reason
        assert (door.busy, door.idle, peer.received[name]) == (0, 0, 1)

    on_uvloop(stack, check)


@pytest.mark.parametrize("name", ["short_body", "reset_in_body", "close_delimited"])
def test_a_broken_body_is_called_so(stack: str, name: str) -> None:
    async def check(call: Call, door: Door, peer: HostilePeer) -> None:
        with pytest.raises(BodyBroken):
            await whole(call, peer.url(name))
        assert (door.busy, door.idle, peer.received[name]) == (0, 0, 1)

    on_uvloop(stack, check)


def test_a_closed_port_is_not_sent(stack: str) -> None:
    async def check(call: Call, door: Door, peer: HostilePeer) -> None:
        async with HostilePeer() as gone:
            url = gone.url("ok")
        with pytest.raises(NotSent):
            await whole(call, url)

    on_uvloop(stack, check)
