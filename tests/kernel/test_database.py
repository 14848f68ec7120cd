"""The bridge to the database: fixed threads, shielded verbs, drained before they close (G3)."""

import asyncio
import contextlib
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connection, connections

from kernel import clock
from kernel.errors import Unavailable
from kernel.models import PassStatus
from kernel.runtime import Database
from kernel.transactions import reading, transaction
from tests.support.wait import wait_until, wait_until_async


class Gate(threading.Event):
    """Holds a verb inside its transaction; `reached` says that it is there."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()


@transaction
def insert(*, name: str, gate: Gate | None = None) -> None:
    PassStatus.objects.create(name=name, owner="o", updated_at=clock.now())
    if gate is not None:
        gate.reached.set()
        assert gate.wait(timeout=10)


def test_each_thread_has_its_own_connection_and_keeps_it(kernel_db: None) -> None:
    assert type(connections._connections) is threading.local, "kernel/apps.py"
    assert connections._connections.default is connections["default"], "and Django looks there"

    def mine() -> tuple[object, object]:
        try:
            return connections["default"], connections["default"]
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as other:
        first, again = other.submit(mine).result()
    assert first is again
    assert first is not connections["default"]


@reading
def count() -> int:
    return PassStatus.objects.count()


def soon(seconds: float = 10.0) -> float:
    return asyncio.get_running_loop().time() + seconds


@contextlib.asynccontextmanager
async def a_database(threads: int | None = None):
    database = Database(threads=threads)
    try:
        yield database
    finally:
        assert await database.drain(soon())
        database.close()


async def test_a_cancelled_caller_neither_stops_nor_drops_a_write(kernel_db: None) -> None:
    gate = Gate()
    async with a_database(threads=1) as database:
        running = asyncio.create_task(database.in_tx(insert, name="running", gate=gate))
        queued = asyncio.create_task(database.in_tx(insert, name="queued"))
        await wait_until_async(gate.reached.is_set)
        for task in (running, queued):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert database.pending == 2
        gate.set()
        assert await database.drain(soon())
        assert await database.in_tx(count) == 2


async def test_a_drain_waits_for_threads_and_reports_what_is_left(kernel_db: None) -> None:
    gate = Gate()
    async with a_database() as database:
        task = asyncio.create_task(database.in_tx(insert, name="slow", gate=gate))
        await wait_until_async(gate.reached.is_set)
        assert not await database.drain(soon(0.05))
        assert database.pending == 1
        gate.set()
        assert await database.drain(soon())
        await task


async def test_errors_reach_the_caller_and_the_threads_go_on(kernel_db: None) -> None:
    def broken() -> None:
        raise ValueError("broken")

    async with a_database() as database:
        with pytest.raises(ValueError, match="broken"):
            await database.in_tx(broken)
        assert await database.in_tx(count) == 0


async def test_a_closed_database_refuses_and_closes_twice(kernel_db: None) -> None:
    database = Database()
    await database.in_tx(count)
    database.close()
    database.close()
    with pytest.raises(Unavailable, match="closed"):
        await database.in_tx(count)


async def test_closing_ends_every_thread_and_connection(server_db: None) -> None:
    before = {thread.name for thread in threading.enumerate()}
    database = Database(threads=4)
    ids = set()

    def my_connection(*, met: threading.Barrier) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT CONNECTION_ID()")
            ids.add(cursor.fetchone()[0])
        met.wait(timeout=10)

    met = threading.Barrier(4)
    await asyncio.gather(*(database.in_tx(my_connection, met=met) for _ in range(4)))
    assert len(ids) == 4, "each thread has its own connection"
    database.close()
    assert {thread.name for thread in threading.enumerate()} == before

    def still_open() -> set[int]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT ID FROM information_schema.PROCESSLIST")
            return ids & {row[0] for row in cursor.fetchall()}

    def gone() -> bool:
        try:
            return not still_open()
        finally:
            connection.close()

    await asyncio.to_thread(wait_until, gone, about="the connections are gone")


async def test_threads_keep_their_connection_and_heal_it_after_a_restart(server_db: None) -> None:
    def connection_id() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT CONNECTION_ID()")
            return int(cursor.fetchone()[0])

    def kill(*, victim: int) -> None:
        with contextlib.suppress(OperationalError), connection.cursor() as cursor:
            cursor.execute(f"KILL {victim}")
        connection.close()

    async with a_database(threads=1) as database:
        first = await database.in_tx(reading(connection_id))
        assert await database.in_tx(reading(connection_id)) == first
        await asyncio.to_thread(kill, victim=first)
        await database.in_tx(insert, name="after-the-restart")
        assert await database.in_tx(reading(connection_id)) != first
        assert await database.in_tx(count) == 1


async def test_the_loop_stays_free_while_the_database_is_slow(kernel_db: None) -> None:
    gate = Gate()
    async with a_database() as database:
        task = asyncio.create_task(database.in_tx(insert, name="slow", gate=gate))
        await wait_until_async(gate.reached.is_set)
        assert not task.done(), "the loop ran while the verb was waiting"
        gate.set()
        await task


async def test_a_thousand_cancelled_callers_leave_the_bridge_whole(kernel_db: None) -> None:
    async with a_database() as database:
        tasks = [asyncio.create_task(database.in_tx(count)) for _ in range(1000)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await database.drain(soon(30))
        assert await database.in_tx(count) == 0
        assert database.pending == 0


async def test_the_callers_context_reaches_the_verb(kernel_db: None) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    name.set("caller")
    async with a_database() as database:
        assert await database.in_tx(name.get) == "caller"


async def test_readers_that_go_on_to_write_wait_for_each_other(kernel_db: None) -> None:
    """Where a block only reads at first, SQLite would refuse the later of two writers at once."""

    @transaction
    def add_one() -> None:
        row = PassStatus.objects.select_for_update().get(name="sum")
        PassStatus.objects.filter(name="sum").update(scanned=row.scanned + 1)

    def ten_times(_: int) -> None:
        try:
            for _ in range(10):
                add_one()
        finally:
            connections.close_all()

    def added() -> None:
        insert(name="sum")
        with ThreadPoolExecutor(6) as threads:
            list(threads.map(ten_times, range(6)))

    async with a_database() as database:
        await asyncio.to_thread(added)
        found = await database.in_tx(lambda: PassStatus.objects.get(name="sum").scanned)
    assert found == 60


async def test_sqlite_gets_one_thread(kernel_db: None) -> None:
    async with a_database(threads=4) as database:
        assert database.threads == (1 if connection.vendor == "sqlite" else 4)
