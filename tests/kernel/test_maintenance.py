"""Passes: pages that wrap, one shared run, back-off, progress from memory (B1, B3-B6)."""

import asyncio
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from django.db import OperationalError

from kernel import clock
from kernel.conf import override
from kernel.models import PassStatus
from kernel.runtime import Database, PageReport, Pass
from kernel.runtime.maintenance import Progress
from tests.support.commits import AWAY, at_commit
from tests.support.wait import wait_until_async


class Clock:
    """A monotonic clock that moves when told; it starts just after a pass is made."""

    def __init__(self) -> None:
        self.now = monotonic() + 5

    def __call__(self) -> float:
        return self.now


class Pages:
    """A page verb over numbered rows; records what it was asked."""

    def __init__(self, rows: int):
        self.rows = rows
        self.asked: list[int | None] = []
        self.failures: list[Exception] = []
        self.gate: threading.Event | None = None

    def __call__(self, *, cursor: int | None, limit: int) -> PageReport:
        self.asked.append(cursor)
        if self.gate is not None:
            assert self.gate.wait(timeout=10)
        if self.failures:
            raise self.failures.pop(0)
        start = cursor or 0
        end = min(start + limit, self.rows)
        found = end - start
        return PageReport(
            scanned=found, settled=found - 1, deferred=1, cursor=end if end < self.rows else None
        )


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moving = Clock()
    monkeypatch.setattr(clock, "monotonic", moving)
    return moving


@pytest.fixture
async def make_pass(kernel_db: None, time: Clock):
    database = Database()

    def make(page: Callable[..., PageReport], **values: Any) -> Pass:
        settings = {
            "name": "settlement",
            "owner": "krn-1",
            "interval_seconds": 60,
            "page_rows": 10,
            "budget_seconds": 20,
            **values,
        }
        return Pass(database=database, page=page, **settings)

    make.database = database
    yield make
    assert await database.drain(asyncio.get_running_loop().time() + 10)
    database.close()


def status() -> PassStatus:
    return PassStatus.objects.get(name="settlement")


async def test_a_pass_walks_pages_to_the_end_and_wraps(make_pass) -> None:
    pages = Pages(rows=25)
    one = make_pass(pages)
    await one.run()
    assert pages.asked == [None, 10, 20]
    await one.run()
    assert pages.asked[3:] == [None, 10, 20], "it starts at the beginning again"


async def test_a_pass_out_of_time_goes_on_where_it_stopped(make_pass, time: Clock) -> None:
    pages = Pages(rows=25)

    def slow(**kwargs: Any) -> PageReport:
        time.now += 15
        return pages(**kwargs)

    one = make_pass(slow)
    await one.run()
    assert pages.asked == [None, 10]
    await one.run()
    assert pages.asked == [None, 10, 20]


async def test_progress_is_the_latest_page_only(make_pass) -> None:
    one = make_pass(Pages(rows=25))
    assert one.progress == Progress()
    await one.run()
    assert one.progress == Progress(scanned=5, settled=4, deferred=1, failed=0, has_more=False)


async def test_each_page_leaves_a_counters_only_row_for_other_processes(make_pass) -> None:
    one = make_pass(Pages(rows=25))
    await one.run()
    row = await make_pass.database.in_tx(status)
    assert (row.owner, row.pages, row.pass_scanned, row.pass_settled) == ("krn-1", 3, 25, 22)
    assert (row.scanned, row.settled, row.deferred, row.has_more) == (5, 4, 1, False)
    assert not row.running
    assert row.finished_at is not None


async def test_a_second_caller_joins_the_active_run(make_pass) -> None:
    pages = Pages(rows=5)
    pages.gate = threading.Event()
    one = make_pass(pages)
    runs = [asyncio.create_task(one.run()) for _ in range(3)]
    await wait_until_async(lambda: pages.asked)
    runs.append(asyncio.create_task(one.run()))
    runs[0].cancel()
    pages.gate.set()
    results = await asyncio.gather(*runs, return_exceptions=True)
    assert pages.asked == [None]
    assert isinstance(results[0], asyncio.CancelledError), "leaving does not end the shared run"
    assert {result.scanned for result in results[1:]} == {5}


async def test_different_owners_are_independent(make_pass) -> None:
    pages = Pages(rows=5)
    pages.gate = threading.Event()
    first, second = make_pass(pages), make_pass(pages, owner="krn-2")
    runs = [asyncio.create_task(each.run()) for each in (first, second)]
    await wait_until_async(lambda: pages.asked)
    pages.gate.set()
    await asyncio.gather(*runs)
    assert pages.asked == [None, None]


async def test_a_new_pass_is_due_at_once_and_overdue_only_after_an_interval(
    make_pass, time: Clock
) -> None:
    one = make_pass(Pages(rows=5))
    assert one.due()
    assert not one.overdue(), "the first tick gets its chance before traffic helps out"
    time.now += 60
    assert one.overdue()
    await one.run()
    assert not one.due()
    time.now += 59.9
    assert not one.due()
    time.now += 0.1
    assert one.due()
    assert not one.overdue()
    time.now += 60
    assert one.overdue()


async def test_missed_intervals_are_made_up_for_by_one_run(make_pass, time: Clock) -> None:
    one = make_pass(Pages(rows=5))
    await one.run()
    time.now += 10 * 60 + 30
    assert one.due()
    await one.run()
    assert not one.due(), "ten were missed, one run looks at everything that is there"
    time.now += 59.9
    assert not one.due(), "the next one comes an interval after it, not at once"
    time.now += 0.1
    assert one.due()


async def test_lives_shorter_than_the_interval_each_begin_with_a_run(make_pass) -> None:
    pages = Pages(rows=5)
    for _ in range(10):  # a restart makes the pass anew
        one = make_pass(pages, interval_seconds=3600)
        assert one.due(), "nothing has to be remembered for it"
        await one.run()
    assert len(pages.asked) == 10


async def test_a_running_pass_is_neither_due_nor_overdue(make_pass, time: Clock) -> None:
    pages = Pages(rows=5)
    pages.gate = threading.Event()
    one = make_pass(pages)
    run = asyncio.create_task(one.run())
    await wait_until_async(lambda: pages.asked)
    time.now += 10_000
    assert not one.due()
    assert not one.overdue()
    pages.gate.set()
    await run


async def test_database_failures_back_off_doubling_and_success_resets(
    make_pass, time: Clock
) -> None:
    pages = Pages(rows=5)
    one = make_pass(pages)
    waits = []
    for _ in range(5):
        pages.failures.append(OperationalError(2006, "gone"))
        await one.run()
        waits.append(one.backoff.wait_seconds)
        time.now = one.backoff.until - 0.1
        assert not one.due()
        time.now += 0.1
    assert waits == [60, 120, 240, 300, 300]
    time.now += 60
    assert one.due()
    await one.run()
    assert one.backoff.wait_seconds == 0
    pages.failures.append(OperationalError(2006, "gone"))
    await one.run()
    assert one.backoff.wait_seconds == 60


async def test_a_failed_page_is_asked_again_from_the_same_place(make_pass) -> None:
    pages = Pages(rows=25)
    one = make_pass(pages)
    await one.run()
    pages.asked.clear()

    def fail_on_second(**kwargs: Any) -> PageReport:
        if len(pages.asked) == 1 and not pages.failures:
            pages.failures.append(OperationalError(2013, "lost"))
        return pages(**kwargs)

    one.page = fail_on_second
    await one.run()
    one.page = pages
    await one.run()
    assert pages.asked == [None, 10, 10, 20]


async def test_the_back_off_is_visible_to_other_processes(make_pass) -> None:
    pages = Pages(rows=5)
    pages.failures.append(OperationalError(2006, "gone"))
    await make_pass(pages).run()
    row = await make_pass.database.in_tx(status)
    assert row.error_code == "OperationalError"
    assert row.backoff_until_at is not None
    assert not row.running
    await make_pass(pages).run()
    row = await make_pass.database.in_tx(status)
    assert (row.error_code, row.backoff_until_at) == ("", None)


async def test_a_pass_survives_a_database_that_cannot_even_record_its_failure(make_pass) -> None:
    pages = Pages(rows=5)
    pages.failures.append(OperationalError(2006, "gone"))
    one = make_pass(pages)
    with at_commit("record_status", AWAY, times=2) as fault:
        await one.run()
    assert fault.fired == 2
    assert one.backoff.wait_seconds == 60
    assert await one.run() == Progress(scanned=5, settled=4, deferred=1)


async def test_a_defect_in_a_page_backs_off_instead_of_ending_the_pass(
    make_pass, caplog: pytest.LogCaptureFixture
) -> None:
    pages = Pages(rows=5)
    pages.failures.append(AttributeError("a defect"))
    one = make_pass(pages)
    await one.run()
    assert one.backoff.wait_seconds == 60
    assert "has a defect" in caplog.text
    assert await one.run() == Progress(scanned=5, settled=4, deferred=1)


async def test_the_back_off_has_configurable_bounds(make_pass) -> None:
    pages = Pages(rows=5)
    one = make_pass(pages)
    with override(backoff_first_seconds=2, backoff_max_seconds=3):
        for _ in range(2):
            pages.failures.append(OperationalError(2006, "gone"))
            await one.run()
    assert one.backoff.wait_seconds == 3
