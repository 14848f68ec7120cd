"""The registry of background work: accepted work is known until it is done (G2, G3)."""

import asyncio
import logging

import pytest

from kernel.errors import Unavailable
from kernel.runtime.background import KINDS, Background


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_every_kind_of_work_is_counted_until_it_is_done() -> None:
    background, go = Background(), asyncio.Event()
    for kind in KINDS:
        background.start(kind, go.wait())
    assert background.pending() == dict.fromkeys(KINDS, 1)
    go.set()
    assert await background.drain(soon())
    assert background.pending() == dict.fromkeys(KINDS, 0)


async def test_the_kinds_are_those_that_a_close_must_know() -> None:
    promised = "callback delivery approval_webhook alert dead_letter settlement generation"
    assert set(promised.split()) <= set(KINDS)


async def test_work_survives_the_caller_that_started_it() -> None:
    background, go, done = Background(), asyncio.Event(), []

    async def work() -> None:
        await go.wait()
        done.append(1)

    async def caller() -> None:
        await asyncio.shield(background.start("generation", work()))

    task = asyncio.create_task(caller())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    assert await background.drain(soon())
    assert done == [1]


async def test_after_intake_stopped_nothing_starts_from_outside() -> None:
    background, ran = Background(), []

    async def work() -> None:
        ran.append(1)

    background.stop_intake()
    with pytest.raises(Unavailable) as refusal:
        background.start("delivery", work())
    assert refusal.value.error_code == "closing"
    assert not background.accepting
    assert ran == []


async def test_accepted_work_may_register_children_while_it_drains() -> None:
    background, go, done = Background(), asyncio.Event(), []

    async def child(depth: int) -> None:
        if depth:
            background.start("alert", child(depth - 1))
        else:
            done.append(1)

    async def monitor() -> None:
        await go.wait()
        background.start("alert", child(3))

    background.start("maintenance", monitor())
    background.stop_intake()
    draining = asyncio.create_task(background.drain(soon()))
    await asyncio.sleep(0)
    go.set()
    assert await draining
    assert done == [1]


async def test_the_right_to_register_children_does_not_leak_to_the_caller() -> None:
    background = Background()
    await background.start("alert", asyncio.sleep(0))
    background.stop_intake()
    with pytest.raises(Unavailable):
        background.start("alert", asyncio.sleep(0))


async def test_a_drain_that_runs_out_of_time_cancels_nothing() -> None:
    background, go, done = Background(), asyncio.Event(), []

    async def work() -> None:
        await go.wait()
        done.append(1)

    background.start("callback", work())
    assert not await background.drain(soon(0.01))
    assert background.pending()["callback"] == 1
    go.set()
    assert await background.drain(soon())
    assert done == [1]


async def test_a_failure_is_counted_and_logged_and_does_not_spread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background = Background()

    async def broken() -> None:
        raise ValueError("broken")

    with caplog.at_level(logging.ERROR):
        background.start("dead_letter", broken())
        assert await background.drain(soon())
    assert background.failures["dead_letter"] == 1
    assert "dead_letter failed" in caplog.text


async def test_an_unknown_kind_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="no such kind"):
        Background().start("misc", asyncio.sleep(0))
