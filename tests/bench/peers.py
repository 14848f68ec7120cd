"""Peers that hang beside healthy ones: how long a real kernel takes for the healthy (F1)."""

import asyncio
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from django.db import connection

from kernel.models import Notification
from tests.bench import rows
from tests.delivery import post
from tests.support.mariadb_server import Server
from tests.support.product import look_apart, running_kernel
from tests.support.receiver import Receiver

HANGING, EACH_HANGING = 40, 5  # more than the slots of a page
HEALTHY, EACH_HEALTHY = 5, 10
HANG_SECONDS, TARGET_SECONDS = 15.0, 2.0
WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds until all healthy messages were delivered: by themselves, and beside the others."""

    alone: float
    beside: float
    held: int  # attempts at hanging peers that were open meanwhile


def measure(server: Server) -> Result:
    """The same messages twice, each on a schema of its own."""
    os.environ[post.SECRET_ENV] = post.SECRET
    alone, _ = _delivered(server, hanging=0)
    beside, held = _delivered(server, hanging=HANGING)
    return Result(alone, beside, held)


def _delivered(server: Server, *, hanging: int) -> tuple[float, int]:
    with rows.migrated(server), tempfile.TemporaryDirectory(prefix="bz-bench-") as own:
        found = asyncio.run(_run(Path(own), hanging=hanging))
        connection.close()
    return found


async def _run(directory: Path, *, hanging: int) -> tuple[float, int]:
    async with Receiver(directory) as receiver:
        await look_apart(lambda: _publish(receiver, hanging=hanging))
        async with running_kernel(worker=True):
            began = time.perf_counter()
            await _wait()
            seconds = time.perf_counter() - began
            held = sum(receiver.running.get(f"hanging-{number}", 0) for number in range(hanging))
            receiver.hold_seconds.clear()
            receiver.release()
    return seconds, held


def _publish(receiver: Receiver, *, hanging: int) -> None:
    """The hanging ones first: they are the oldest that are due."""
    for number in range(hanging):
        receiver.hold_seconds[f"hanging-{number}"] = HANG_SECONDS
        post.destination(f"hanging-{number}", address=receiver.url(f"hanging-{number}"))
        post.queued(EACH_HANGING, to=f"hanging-{number}")
    for number in range(HEALTHY):
        post.destination(f"healthy-{number}", address=receiver.url(f"healthy-{number}"))
        post.queued(EACH_HEALTHY, to=f"healthy-{number}")


async def _wait() -> None:
    rows_of = Notification.objects.filter(destination_id__startswith="healthy", state="delivered")
    deadline = time.monotonic() + WAIT_SECONDS
    while await look_apart(rows_of.count) < HEALTHY * EACH_HEALTHY:
        if time.monotonic() > deadline:
            raise RuntimeError("the healthy peers were not served in time")
        await asyncio.sleep(0.02)
