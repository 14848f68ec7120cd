"""Peak memory stays near the budget, for a bomb as for a body that just fits (E1).

The call runs in a process of its own, so that only its memory is measured.
"""

import asyncio
import json
import sys

import pytest

from tests.support.hostile_peer import HostilePeer

MIB = 2**20
BUDGET = 5 * MIB
GROWTH_MAX = 8 * MIB

CHILD = """
import asyncio, gc, json, sys
from pathlib import Path
from kernel.errors import PeerError
from kernel.http import AddressPolicy, Door, read_body

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

async def once(door, url, budget):
    async with door.call(method="GET", url=url, policy=AddressPolicy(allow_private=True),
            deadline_seconds=60, read_seconds=30, connect_seconds=5) as answer:
        try:
            return len(await read_body(answer, body_bytes_max=budget))
        except PeerError as error:
            return type(error).__name__

async def main(stack, warm, url, budget):
    door = Door(stack=stack)
    await once(door, warm, budget)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    result = await once(door, url, budget)
    print(json.dumps({"growth": peak() - before, "result": result}))
    await door.aclose()

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


async def measured(stack: str, warm: str, url: str) -> dict[str, object]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, stack, warm, url, str(BUDGET), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    return json.loads(out)


@pytest.mark.parametrize("gzip", [0, 1])
async def test_a_bomb_costs_no_more_than_its_budget(
    stack: str, peer: HostilePeer, gzip: int
) -> None:
    url = peer.url("bomb", mib=256, gzip=gzip)
    found = await measured(stack, peer.url("gzip_ok"), url)
    assert found["result"] == "BodyTooLarge"
    assert found["growth"] < GROWTH_MAX


async def test_a_bomb_that_just_fits_costs_no_more_than_its_budget(
    stack: str, peer: HostilePeer
) -> None:
    found = await measured(stack, peer.url("gzip_ok"), peer.url("bomb", mib=5))
    assert found["result"] == BUDGET
    assert found["growth"] < GROWTH_MAX


@pytest.mark.parametrize(("size", "result"), [(BUDGET, BUDGET), (BUDGET + 1, "BodyTooLarge")])
async def test_a_plain_body_costs_no_more_than_its_budget(
    stack: str, peer: HostilePeer, size: int, result: object
) -> None:
    found = await measured(stack, peer.url("ok"), peer.url("ok", size=size))
    assert found["result"] == result
    assert found["growth"] < GROWTH_MAX


async def test_an_endless_body_costs_no_more_than_its_budget(stack: str, peer: HostilePeer) -> None:
    found = await measured(stack, peer.url("ok"), peer.url("endless"))
    assert found["result"] == "BodyTooLarge"
    assert found["growth"] < GROWTH_MAX
