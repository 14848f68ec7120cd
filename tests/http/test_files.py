"""Downloads to disk: whole and hashed within their budget, or nothing is left (E4)."""

import asyncio
import hashlib
import json
import sys
from pathlib import Path

import pytest

from kernel.errors import AddressRefused, BodyBroken, BodyTooLarge, OutcomeUnknown, PeerError
from kernel.http import AddressPolicy, Door, Downloaded, download
from tests.http.conftest import ANYWHERE
from tests.support.hostile_peer import HostilePeer

MIB = 2**20
BUDGET = 20 * MIB
GROWTH_MAX = 8 * MIB

CHILD = """
import asyncio, gc, json, sys
from pathlib import Path
from kernel.errors import PeerError
from kernel.http import AddressPolicy, Door, download

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

async def once(door, url, budget, path):
    try:
        return (await download(door=door, url=url, policy=AddressPolicy(allow_private=True),
            bytes_max=budget, path=Path(path))).bytes
    except PeerError as error:
        return type(error).__name__

async def main(warm, url, budget, folder):
    door = Door()
    await once(door, warm, budget, folder + "/warm")
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    result = await once(door, url, budget, folder + "/file")
    print(json.dumps({"growth": peak() - before, "result": result}))
    await door.aclose()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
"""


async def fetch(door: Door, url: str, path: Path, *, bytes_max: int = BUDGET, **fields: object):
    values = {"policy": ANYWHERE, "deadline_seconds": 20.0, **fields}
    return await download(door=door, url=url, bytes_max=bytes_max, path=path, **values)  # type: ignore[arg-type]  # mixed values


async def measured(warm: str, url: str, folder: Path) -> dict[str, object]:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, warm, url, str(BUDGET), str(folder)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    return json.loads(out)


async def test_a_whole_file_is_on_disk_with_its_hash(
    door: Door, peer: HostilePeer, tmp_path: Path
) -> None:
    found = await fetch(door, peer.url("ok", size=300_000), tmp_path / "file")
    body = b"x" * 300_000
    assert found == Downloaded(hashlib.sha256(body).hexdigest(), len(body))
    assert (tmp_path / "file").read_bytes() == body
    assert [each.name for each in tmp_path.iterdir()] == ["file"], "no part is left"


@pytest.mark.parametrize(
    ("what", "error"),
    [
        (("ok", {"size": 2 * MIB}), BodyTooLarge),
        (("bomb", {"mib": 64, "gzip": 1}), BodyTooLarge),
        (("endless", {}), BodyTooLarge),
        (("short_body", {}), BodyBroken),
        (("short_chunked", {}), BodyBroken),
        (("close_delimited", {}), BodyBroken),
        (("reset_in_body", {}), BodyBroken),
        (("redirect", {}), PeerError),
        (("nothing", {}), PeerError),
        (("close_after_request", {}), OutcomeUnknown),
    ],
)
async def test_what_is_not_whole_or_too_large_leaves_nothing(
    door: Door, peer: HostilePeer, tmp_path: Path, what: tuple[str, dict[str, int]], error: type
) -> None:
    name, params = what
    with pytest.raises(error):
        await fetch(door, peer.url(name, **params), tmp_path / "file", bytes_max=MIB)
    assert list(tmp_path.iterdir()) == []


async def test_a_private_address_is_refused_before_anything_is_asked(
    door: Door, peer: HostilePeer, tmp_path: Path
) -> None:
    with pytest.raises(AddressRefused):
        await fetch(door, peer.url("ok"), tmp_path / "file", policy=AddressPolicy())
    assert peer.connections == 0
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_is_there_is_never_replaced(
    door: Door, peer: HostilePeer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        await fetch(door, peer.url("ok"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"mine"
    assert peer.received["ok"] == 0


async def test_two_downloads_to_one_name_leave_one_whole_file(
    door: Door, peer: HostilePeer, tmp_path: Path
) -> None:
    both = await asyncio.gather(
        fetch(door, peer.url("chunked", chunks=5, gap_ms=20), tmp_path / "file"),
        fetch(door, peer.url("chunked", chunks=5, gap_ms=20), tmp_path / "file"),
        return_exceptions=True,
    )
    assert {type(each) for each in both} == {Downloaded, FileExistsError}
    assert (tmp_path / "file").read_bytes() == b"chunk" * 5
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("name", "params", "result"),
    [
        ("ok", {"size": BUDGET}, BUDGET),
        ("endless", {}, "BodyTooLarge"),
        ("bomb", {"mib": 256, "gzip": 1}, "BodyTooLarge"),
    ],
)
async def test_a_download_stays_out_of_memory(
    peer: HostilePeer, tmp_path: Path, name: str, params: dict[str, int], result: object
) -> None:
    found = await measured(peer.url("ok"), peer.url(name, **params), tmp_path)
    assert found["result"] == result
    assert found["growth"] < GROWTH_MAX
