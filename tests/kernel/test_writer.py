"""Group commit: calls share a transaction, and nobody pays for another's fault (A2, A4)."""

import asyncio
import threading
from collections.abc import Sequence
from unittest import mock

import pytest
from django.db import DataError, OperationalError, connection

from kernel import clock
from kernel.conf import override
from kernel.errors import CommitOutcomeUnknown, Conflict, Unavailable
from kernel.models import PassStatus
from kernel.runtime import Database, Writer
from kernel.runtime import writer as writer_module
from kernel.transactions import transaction
from tests.support.commits import AWAY, LANDED, VANISHED, at_commit
from tests.support.wait import wait_until_async

LOCKED: dict[str, bool] = {}
seen: list[list[str]] = []
confirmed: list[str] = []
gate = threading.Event()
# What is set aside waits once, on a server; elsewhere nothing is known of short waits.
WAITS = 1 if connection.vendor == "mysql" else 2


@transaction
def write(*, items: Sequence[str]) -> list[str | Exception]:
    """Inserts each name; 'refused*' is its own error, 'poison*' breaks the whole batch."""
    seen.append(list(items))
    if "wait" in items:
        assert gate.wait(timeout=10)
    outcomes: list[str | Exception] = []
    for name in items:
        if LOCKED.get(name, name.startswith("locked")):
            raise OperationalError(1205, "Lock wait timeout exceeded")
        if name.startswith("poison"):
            raise DataError(1406, "Data too long")
        if name.startswith("away"):
            raise OperationalError(2006, "gone")
        if name.startswith("refused"):
            outcomes.append(Conflict(name))
            continue
        PassStatus.objects.create(name=name, owner="o", updated_at=clock.now())
        outcomes.append(name)
    return outcomes


@transaction
def confirm(*, items: Sequence[str]) -> list[str | Exception]:
    confirmed.extend(items)
    found = set(PassStatus.objects.filter(name__in=items).values_list("name", flat=True))
    return [f"{name}!" if name in found else LookupError(name) for name in items]


@pytest.fixture
async def writer(kernel_db: None):
    seen.clear()
    confirmed.clear()
    gate.clear()
    database = Database()
    yield Writer(database, write, confirm=confirm, key=lambda item: item)
    assert await database.drain(asyncio.get_running_loop().time() + 10)
    database.close()


async def put_behind(writer: Writer[str, str], *names: str) -> list[str | BaseException]:
    """Put all names while the writer is busy, so that they share the next transaction."""
    first = asyncio.create_task(writer.put("wait"))
    await wait_until_async(lambda: ["wait"] in seen, about="the writer is busy")
    others = [asyncio.create_task(writer.put(name, group=name[:6])) for name in names]
    await asyncio.sleep(0)
    gate.set()
    await first
    return await asyncio.gather(*others, return_exceptions=True)


async def put_at_once(writer: Writer[str, str], *names: str) -> list[str | BaseException]:
    calls = [writer.put(name, group=name[:6]) for name in names]
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_calls_that_meet_share_one_commit_in_order_of_their_keys(writer) -> None:
    assert await put_behind(writer, "c", "a", "b") == ["c", "a", "b"]
    assert seen == [["wait"], ["a", "b", "c"]]


async def test_a_batch_is_bounded(writer) -> None:
    with override(writer_batch_max=2):
        await put_behind(writer, "a", "b", "c", "d", "e")
    assert [len(batch) for batch in seen] == [1, 2, 2, 1]


async def test_an_outcome_that_is_an_error_is_its_callers_alone(writer) -> None:
    good, bad = await put_behind(writer, "good", "refused-1")
    assert good == "good"
    assert isinstance(bad, Conflict)
    assert len(seen) == 2


async def test_a_poisoned_item_does_not_cost_the_others_their_commit(writer) -> None:
    names = [f"good-{number}" for number in range(5)]
    *good, bad = await put_behind(writer, *names, "poison")
    assert good == names
    assert isinstance(bad, DataError)
    assert len(seen) == 2 + 6, "the batch once, then each by itself"


async def test_after_a_lock_wait_only_the_group_that_waits_again_gets_the_error(writer) -> None:
    a, b, first, second = await put_behind(writer, "a", "b", "locked-1", "locked-2")
    assert (a, b) == ("a", "b")
    assert all(isinstance(each, OperationalError) for each in (first, second))
    together = ["a", "b", "locked-1", "locked-2"]
    assert seen[1:3] == [together] * 2, "once, for the usual time"
    assert sorted(seen[3:]) == [["a"], ["b"], *[["locked-1", "locked-2"]] * WAITS]


async def test_what_was_locked_shares_no_batch_until_it_is_written(writer) -> None:
    await put_behind(writer, "a", "locked-1")
    seen.clear()
    b, locked = await put_at_once(writer, "b", "locked-2")
    assert b == "b" and isinstance(locked, OperationalError)
    assert sorted(seen) == [["b"], *[["locked-2"]] * WAITS]
    with mock.patch.dict(LOCKED, {"locked-3": False}):
        assert await put_at_once(writer, "c", "locked-3") == ["c", "locked-3"]
    seen.clear()
    with mock.patch.dict(LOCKED, {"locked-4": False}):
        assert await put_at_once(writer, "d", "locked-4") == ["d", "locked-4"]
    assert seen == [["d", "locked-4"]], "it is free again"


async def test_what_queued_up_behind_a_lock_wait_does_not_wait_for_it_again(writer) -> None:
    """The batch is full of the locked group, and so is the queue behind it."""
    with override(writer_batch_max=2):
        names = ["locked-1", "locked-2", "locked-3", "x", "locked-4", "y"]
        locked_1, locked_2, locked_3, x, locked_4, y = await put_behind(writer, *names)
    assert (x, y) == ("x", "y")
    for each in (locked_1, locked_2, locked_3, locked_4):
        assert isinstance(each, OperationalError)
    assert seen[1:3] == [["locked-1", "locked-2"]] * 2, "the usual time"
    assert ["x", "y"] in seen
    assert seen.count(["locked-3", "locked-4"]) == WAITS, "a short time, and nobody behind it"


async def test_a_call_alone_that_waits_in_vain_is_set_aside_as_well(writer) -> None:
    gate.set()
    with pytest.raises(OperationalError):
        await writer.put("locked-1", group="locked")
    assert seen == [["locked-1"]] * 2
    b, _ = await put_at_once(writer, "b", "locked-2")
    assert b == "b" and ["b", "locked-2"] not in seen


async def test_too_many_that_wait_aside_are_refused(writer) -> None:
    gate.set()
    with pytest.raises(OperationalError):
        await writer.put("locked-1", group="locked")
    with mock.patch.object(writer_module, "ASIDE_MAX", 1):
        first, *more = await put_at_once(writer, "locked-2", "locked-3", "locked-4")
    assert isinstance(first, OperationalError)
    assert all(isinstance(each, Unavailable) for each in more)


async def test_a_lost_acknowledgement_of_a_group_is_asked_about_by_each(writer) -> None:
    await put_behind(writer, "a", "locked-1")
    with mock.patch.dict(LOCKED, {"locked-2": False}), at_commit("write", LANDED) as fault:
        assert await writer.put("locked-2", group="locked") == "locked-2!"
    assert (fault.fired, confirmed) == (1, ["locked-2"])


async def test_a_group_that_is_poisoned_and_locked_waits_once(writer) -> None:
    names = ["poison", "poison-locked", "poison-x", "a"]
    with mock.patch.dict(LOCKED, {"poison-locked": True}):
        poison, locked, last, a = await put_behind(writer, *names)
    assert a == "a"
    assert isinstance(poison, DataError) and isinstance(locked, OperationalError)
    assert last is locked, "it needs what the one before it waited for"


async def test_a_database_that_is_away_is_asked_once_for_the_whole_batch(writer) -> None:
    outcomes = await put_behind(writer, "a", "away", "b")
    assert all(isinstance(outcome, OperationalError) for outcome in outcomes)
    assert seen[1:] == [["a", "away", "b"]] * 2, "run, reconnected once, given up: not one by one"
    assert await writer.put("later") == "later"


async def test_after_a_lost_acknowledgement_each_member_asks_for_itself(writer) -> None:
    with at_commit("write", LANDED) as fault:
        gate.set()
        assert await writer.put("a") == "a!"
    assert fault.fired == 1
    assert (seen, confirmed) == ([["a"]], ["a"])


async def test_a_lost_commit_that_did_not_land_is_told_as_the_confirmation_finds_it(writer) -> None:
    gate.set()
    with at_commit("write", VANISHED), pytest.raises(LookupError):
        await writer.put("a")
    assert confirmed == ["a"]


async def test_a_confirmation_without_acknowledgement_is_asked_again_and_bounded(writer) -> None:
    gate.set()
    with at_commit("write", LANDED), at_commit("confirm", VANISHED, times=1) as fault:
        assert await writer.put("a") == "a!"
    assert fault.fired == 1
    with at_commit("*", VANISHED, times=50), pytest.raises(CommitOutcomeUnknown):
        await writer.put("b")


async def test_the_writer_works_on_after_every_fault(writer) -> None:
    gate.set()
    with at_commit("write", AWAY, times=2), pytest.raises(OperationalError):
        await writer.put("a")
    assert await writer.put("b") == "b"


async def test_a_caller_that_leaves_does_not_take_its_item_along(writer) -> None:
    first = asyncio.create_task(writer.put("wait"))
    await wait_until_async(lambda: ["wait"] in seen, about="the writer is busy")
    leaving = asyncio.create_task(writer.put("left"))
    await asyncio.sleep(0)
    leaving.cancel()
    gate.set()
    await first
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await writer.put("next") == "next"
    assert ["left"] in seen
