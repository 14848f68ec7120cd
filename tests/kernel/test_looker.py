"""The loop of worker and dispatcher: woken, paced, patient after failures, one look at a time."""

import asyncio

import pytest
from django.db import OperationalError

from kernel.runtime import Looker
from tests.support.wait import wait_until_async


class Asking(Looker):
    """Counts its looks; raises `errors` in order, then finds nothing."""

    def __init__(self, *errors: Exception, pace_seconds: float = 60.0, last_look: bool = False):
        super().__init__()
        self.errors, self.pace_seconds, self.last_look = list(errors), pace_seconds, last_look
        self.looks = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def _claim(self) -> None:
        self.looks += 1
        await self.may_go_on.wait()
        if self.errors:
            raise self.errors.pop(0)

    def _pace_seconds(self) -> float:
        return self.pace_seconds


async def looked(one: Asking, times: int) -> None:
    await wait_until_async(lambda: one.looks >= times, about=f"look {times}")


async def test_it_looks_at_its_pace_and_at_once_when_it_is_woken() -> None:
    quick, slow = Asking(pace_seconds=0.01), Asking()
    quick.start()
    slow.start()
    await looked(quick, 3)
    assert slow.looks == 1
    slow.wake()
    await looked(slow, 2)
    await asyncio.gather(quick.stop(), slow.stop())


async def test_a_wake_up_during_a_look_is_not_lost() -> None:
    one = Asking()
    one.may_go_on.clear()
    one.start()
    await looked(one, 1)
    one.wake()
    one.may_go_on.set()
    await looked(one, 2)
    await one.stop()


@pytest.mark.parametrize("error", [OperationalError(2013, "lost"), ValueError("a defect")])
async def test_after_a_failure_no_wake_up_but_only_the_end_shortens_the_wait(
    error: Exception,
) -> None:
    one = Asking(error)
    one.start()
    await looked(one, 1)
    for _ in range(20):
        one.wake()
        await asyncio.sleep(0)
    assert one.looks == 1
    await asyncio.wait_for(one.stop(), 5)
    assert one.looks == 1 and not one.is_started


@pytest.mark.parametrize(("last_look", "looks"), [(False, 1), (True, 2)])
async def test_the_end_comes_at_once_with_one_more_look_where_one_is_due(
    last_look: bool, looks: int
) -> None:
    one = Asking(last_look=last_look)
    one.start()
    await looked(one, 1)
    await asyncio.wait_for(one.stop(), 5)
    assert one.looks == looks
    one.start()
    assert not one.is_started, "what was stopped does not begin again"


async def test_who_waits_for_the_end_waits_for_the_claim_on_its_way() -> None:
    one = Asking()
    now = asyncio.get_running_loop().time
    assert await one.stopped(now()), "it never began"
    one.may_go_on.clear()
    one.start()
    await looked(one, 1)
    one.stop_claiming()
    assert not await one.stopped(now() + 0.05)
    one.may_go_on.set()
    assert await one.stopped(now() + 5)
