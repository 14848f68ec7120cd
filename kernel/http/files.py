"""Remote files: streamed to disk with a hash, within a budget of bytes (E4).

The budget bounds the download, not what a parser later makes of it. A file under its final name is
whole: everything else is removed.
"""

import asyncio
import hashlib
import os
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path

from kernel.conf import conf
from kernel.errors import PeerError
from kernel.http.addresses import AddressPolicy
from kernel.http.answer import Answer
from kernel.http.client import Door

PART_SUFFIX = ".part"


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A file on disk: the sha256 of its bytes and how many there are."""

    sha256: str
    bytes: int


async def download(
    *,
    door: Door,
    url: str,
    policy: AddressPolicy,
    bytes_max: int,
    path: Path,
    deadline_seconds: float = 120.0,
) -> Downloaded:
    """GET `url` into the new file `path`, at most `bytes_max` decoded bytes; never kept in memory.

    A whole 200 with a proven end, or nothing: PeerError `download_refused` for any other status,
    BodyTooLarge (at once where Content-Length says so), BodyBroken, NotSent, OutcomeUnknown.
    FileExistsError when `path` is taken. `bytes_max`: conf.remote_file_bytes_max or
    conf.attachment_bytes_max, whichever it is for (E4).
    """
    # A name of its own: a part that a killed process left behind is in nobody's way.
    part = path.with_name(f"{path.name}.{os.urandom(6).hex()}{PART_SUFFIX}")
    if await asyncio.to_thread(path.exists):
        raise FileExistsError(path)
    try:
        async with door.call(
            method="GET",
            url=url,
            policy=policy,
            deadline_seconds=deadline_seconds,
            read_seconds=min(deadline_seconds, conf.provider_read_seconds),
            connect_seconds=min(deadline_seconds, conf.provider_connect_seconds),
        ) as answer:
            if answer.status != 200:
                raise PeerError(
                    f"the file was not sent: HTTP {answer.status}",
                    code="download_refused",
                    status=answer.status,
                )
            found = await _save(answer, part=part, bytes_max=bytes_max)
        # Fails where somebody made the file meanwhile; a rename would replace theirs.
        await asyncio.to_thread(os.link, part, path)
        return found
    finally:
        part.unlink(missing_ok=True)


async def _save(answer: Answer, *, part: Path, bytes_max: int) -> Downloaded:
    digest, count = hashlib.sha256(), 0
    with await asyncio.to_thread(part.open, "xb") as file:
        async for piece in answer.chunks(body_bytes_max=bytes_max):
            digest.update(piece)
            count += len(piece)
            await asyncio.to_thread(file.write, piece)
        await asyncio.to_thread(_to_disk, file)
    return Downloaded(digest.hexdigest(), count)


def _to_disk(file: BufferedWriter) -> None:
    file.flush()
    os.fsync(file.fileno())
