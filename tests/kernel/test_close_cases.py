"""Close cases, each with 0..8 pieces of work that hang: in time, nothing lost, again (G3, G4).

A timed-out close keeps what it could not end on the instance; what hung goes on, and the next close
finds it done. The machine's own lateness is measured beside each close and taken off.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kernel import transactions
from kernel.conf import override
from kernel.kernel import CloseReport, Kernel
from kernel.models import Account, Notification, Request
from tests.delivery import post
from tests.support.product import (
    ask,
    look,
    look_apart,
    make_account,
    stream_bytes,
)
from tests.support.provider import ProviderProcess
from tests.support.wait import wait_until_async

BUDGET_SECONDS = 0.2
IDLE_BUDGET_SECONDS = 10.0  # where nothing hangs, the close ends long before
OVER_SECONDS_MAX = 0.5
PATIENCE_SECONDS = 40.0
COUNTS = range(9)
HOOKS = "/hooks"


@dataclass
class Hung:
    """Work that hangs until `release()`; `check()` then finds all of it, after the last close."""

    release: Callable[[], None]
    check: Callable[[], None]
    finish: Callable[[], Awaitable[None]] | None = None


@dataclass
class Place:
    """Where a case takes place."""

    kernel: Kernel
    shop: ProviderProcess
    patch: pytest.MonkeyPatch


async def _reached(fact: Callable[[], bool], about: str) -> None:
    await wait_until_async(fact, PATIENCE_SECONDS, about=about)


# --- what hangs -----------------------------------------------------------------------------------


async def blocked_threads(place: Place, count: int) -> Hung:
    """Verbs that hold database threads."""
    gate, done = threading.Event(), []

    def verb() -> None:
        assert gate.wait(PATIENCE_SECONDS)
        done.append(1)

    for _ in range(count):
        place.kernel.background.start("settlement", place.kernel.database.in_tx(verb))
    await _reached(lambda: place.kernel.database.pending == count, "the verbs run or wait")

    def check() -> None:
        assert len(done) == count

    return Hung(gate.set, check)


async def hung_commits(place: Place, count: int) -> Hung:
    """Transactions that are committed, and whose OK does not come."""
    gate, committed = threading.Event(), []
    real = transactions.commit_unit

    def commit_unit(name: str, attempt: Any, block: Callable[[], Any]) -> Any:
        result = real(name, attempt, block)
        if isinstance(result, Account):
            committed.append(1)
            assert gate.wait(PATIENCE_SECONDS)
        return result

    place.patch.setattr(transactions, "commit_unit", commit_unit)
    names = [f"late-{number}" for number in range(count)]
    for name in names:
        work = place.kernel.database.in_tx(make_account, account_id=name)
        place.kernel.background.start("maintenance", work)
    threads = min(count, place.kernel.database.threads)
    await _reached(lambda: len(committed) == threads, "every thread waits for an OK")

    def check() -> None:
        assert Account.objects.filter(id__in=names).count() == count

    return Hung(gate.set, check)


async def hung_provider(place: Place, count: int) -> Hung:
    """Calls that the provider has received and not answered."""
    for number in range(count):
        place.shop.next("hold", marker=f"op-{number}")
        await place.kernel.gateway.submit(ask(f"op-{number}"))
    await _reached(lambda: place.shop.count() == count, "the provider has the calls")
    return Hung(place.shop.release, lambda: _all_complete(place.shop, count))


async def streaming_clients(place: Place, count: int) -> Hung:
    """Streams that clients read, and that stand still in the middle."""
    reading = []
    for number in range(count):
        place.shop.next("stream_hold_midway", marker=f"op-{number}")
        flight: Any = await place.kernel.gateway.submit(ask(f"op-{number}", stream=True))
        reading.append(asyncio.create_task(stream_bytes(flight)))
    await _reached(lambda: place.shop.count() == count, "the provider has the calls")

    async def finish() -> None:
        for whole in await asyncio.gather(*reading):
            assert whole.endswith(b"data: [DONE]\n\n")

    return Hung(place.shop.release, lambda: _all_complete(place.shop, count), finish)


async def hung_receiver(place: Place, count: int) -> Hung:
    """Messages that the receiver has got and not answered."""
    place.patch.setenv(post.SECRET_ENV, post.SECRET)
    address = f"{place.shop.url}{HOOKS}"
    await look_apart(lambda: post.destination(address=address))
    place.shop.next("hold", times=max(count, 1))
    await look_apart(lambda: post.queued(count))
    place.kernel.dispatcher.wake()
    await _reached(lambda: place.shop.count() == count, "the receiver has the messages")

    def check() -> None:
        rows = Notification.objects.all()
        assert [(row.state, row.attempts) for row in rows] == [("delivered", 1)] * count
        assert place.shop.count() == count, "each arrived once"

    return Hung(place.shop.release, check)


def _all_complete(shop: ProviderProcess, count: int) -> None:
    rows = Request.objects.all()
    assert [row.result_state for row in rows] == ["complete"] * count
    assert [shop.count(f"op-{number}") for number in range(count)] == [1] * count


HANGS = (blocked_threads, hung_commits, hung_provider, streaming_clients, hung_receiver)


# --- closing --------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _kernel(*, worker: bool = False) -> AsyncIterator[Kernel]:
    kernel = Kernel(worker=worker)
    await kernel.initialize()
    try:
        yield kernel
    finally:
        assert (await kernel.close(PATIENCE_SECONDS)).drained


async def _closed(kernel: Kernel, count: int) -> CloseReport:
    """A close within its budget: never later than that, but for what the machine was late."""
    budget = BUDGET_SECONDS if count else IDLE_BUDGET_SECONDS
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def lateness() -> float:
        await asyncio.sleep(BUDGET_SECONDS)
        return loop.time() - began - BUDGET_SECONDS

    late = asyncio.create_task(lateness())
    report = await kernel.close(budget)
    took = loop.time() - began
    assert took <= budget + OVER_SECONDS_MAX + await late
    return report


def _is_told(report: CloseReport, count: int) -> None:
    assert report.drained == (count == 0), report.left
    assert sum(report.left.values()) >= count


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("hangs", HANGS, ids=lambda each: each.__name__)
async def test_a_close_ends_in_time_loses_nothing_and_can_be_called_again(
    shop: ProviderProcess,
    monkeypatch: pytest.MonkeyPatch,
    hangs: Callable[[Place, int], Awaitable[Hung]],
    count: int,
) -> None:
    with override(destination_slots_count_max=max(COUNTS)):
        async with _kernel(worker=hangs is hung_receiver) as kernel:
            hung = await hangs(Place(kernel, shop, monkeypatch), count)
            try:
                _is_told(await _closed(kernel, count), count)
            finally:
                hung.release()
            again = await kernel.close(PATIENCE_SECONDS)
            assert (again.drained, again.left) == (True, {})
            if hung.finish is not None:
                await hung.finish()
            await look_apart(hung.check)


@pytest.mark.parametrize("count", COUNTS)
async def test_a_second_signal_while_closing_changes_nothing(
    shop: ProviderProcess, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """What a second SIGTERM may lead to: another close while the first one waits."""
    async with _kernel() as kernel:
        hung = await hung_provider(Place(kernel, shop, monkeypatch), count)
        try:
            reports = await asyncio.gather(_closed(kernel, count), _closed(kernel, count))
            for report in reports:
                _is_told(report, count)
            still = await look(kernel, _dispatched) if count else 0
            assert still == count, "the database still answers, nothing was given up"
        finally:
            hung.release()
        assert (await kernel.close(PATIENCE_SECONDS)).drained
        await look_apart(hung.check)


def _dispatched() -> int:
    return Request.objects.filter(result_state="dispatched").count()
