"""The total deadline, the longest silence, and what is known when they pass (E6)."""

import asyncio
import time

import pytest

from kernel.errors import NotSent, OutcomeUnknown
from kernel.http import Door
from tests.http.conftest import Call, calling, whole
from tests.support.hostile_peer import HostilePeer


@pytest.mark.parametrize("name", ["hang", "hang_after_head", "stream_until_told"])
async def test_silence_ends_a_call(call: Call, door: Door, peer: HostilePeer, name: str) -> None:
    with pytest.raises(OutcomeUnknown) as unknown:
        await whole(call, peer.url(name), read_seconds=0.1)
    assert unknown.value.details["reason"] == "silence"
    assert (peer.received[name], door.busy, door.idle) == (1, 0, 0)


@pytest.mark.parametrize("name", ["hang", "drip", "drip_head", "continue_for_ever", "endless"])
async def test_the_deadline_ends_a_call_that_is_never_silent(
    call: Call, door: Door, peer: HostilePeer, name: str
) -> None:
    began = time.monotonic()
    with pytest.raises(OutcomeUnknown) as unknown:
        async with call(url=peer.url(name), deadline_seconds=0.4) as answer:
            async for _ in answer.chunks(body_bytes_max=10**12):
                pass
    assert unknown.value.details["reason"] == "deadline"
    assert 0.35 < time.monotonic() - began < 2
    assert (peer.received[name], door.busy, door.idle) == (1, 0, 0)


async def test_a_steady_stream_longer_than_the_read_limit_is_fine(
    call: Call, peer: HostilePeer
) -> None:
    url = peer.url("chunked", chunks=10, gap_ms=50)
    assert await whole(call, url, read_seconds=0.3) == b"chunk" * 10


async def test_the_deadline_counts_while_the_caller_is_slow(call: Call, peer: HostilePeer) -> None:
    with pytest.raises(OutcomeUnknown) as unknown:
        async with call(url=peer.url("endless"), deadline_seconds=0.2) as answer:
            chunks = answer.chunks(body_bytes_max=10**12)
            await anext(chunks)
            await asyncio.sleep(0.25)
            await anext(chunks)
    assert unknown.value.details["reason"] == "deadline"


async def test_a_peer_that_does_not_take_the_body_leaves_the_outcome_unknown(stack: str) -> None:
    async def first(wire) -> None:
        await asyncio.Event().wait()

    async with HostilePeer(first=first) as peer:
        door = Door(stack=stack)
        with pytest.raises(OutcomeUnknown) as unknown:
            await whole(calling(door), peer.url("ok"), content=bytes(2**25), read_seconds=0.2)
        assert unknown.value.details["reason"] == "silence"
        await door.aclose()


async def test_a_deadline_that_passed_while_waiting_for_a_slot_is_not_sent(
    stack: str, peer: HostilePeer
) -> None:
    door = Door(stack=stack, connections_max=1)
    call = calling(door)
    async with call(url=peer.url("stream_until_told")):
        with pytest.raises(NotSent):
            await whole(call, peer.url("ok"), deadline_seconds=0.1)
    assert peer.received["ok"] == 0
    await door.aclose()
