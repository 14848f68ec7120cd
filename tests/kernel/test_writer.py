"""Group commit: calls share a transaction, and nobody pays for another's fault (A2, A4)."""

import asyncio
import threading
from collections.abc import Sequence
from unittest import mock

import pytest
from django.db import DataError, OperationalError

from kernel import clock
from kernel.conf import override
from kernel.errors import CommitOutcomeUnknown, Conflict
from kernel.models import PassStatus
from kernel.runtime import Database, Writer
from kernel.runtime.writer import LOCKED_SECONDS
from kernel.transactions import transaction
from tests.support.commits import AWAY, LANDED, VANISHED, at_commit
from tests.support.wait import wait_until_async

LOCKED: dict[str, bool] = {}
seen: list[list[str]] = []
confirmed: list[str] = []
gate = threading.Event()


@transaction
def write(*, items: Sequence[str]) -> list[str | Exception]:
    """Inserts each name; 'refused*' is its own error, 'poison*' breaks the whole batch."""
    seen.append(list(items))
    if "wait" in items:
        assert gate.wait(timeout=10)
    outcomes: list[str | Exception] = []
    for name in items:
        if name.startswith("poison"):
            raise DataError(1406, "Data too long")
        if LOCKED.get(name, name.startswith("locked")):
            raise OperationalError(1205, "Lock wait timeout exceeded")
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
    yield Writer(
        database,
        write,
        confirm=confirm,
        key=lambda item: item,
        group=lambda item: item[:6],
    )
    assert await database.drain(asyncio.get_running_loop().time() + 10)
    database.close()


async def put_behind(writer: Writer[str, str], *names: str) -> list[str | BaseException]:
    """Put all names while the writer is busy, so that they share the next transaction."""
    first = asyncio.create_task(writer.put("wait"))
    await wait_until_async(lambda: ["wait"] in seen, about="the writer is busy")
    others = [asyncio.create_task(writer.put(name)) for name in names]
    await asyncio.sleep(0)
    gate.set()
    await first
    return await asyncio.gather(*others, return_exceptions=True)


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
    assert seen[1:] == [together] * 2 + [["a"], ["b"]] + [["locked-1", "locked-2"]] * 2


async def test_what_was_locked_shares_no_batch_for_a_while(writer) -> None:
    await put_behind(writer, "a", "locked-1")
    seen.clear()
    b, locked = await asyncio.gather(
        writer.put("b"), writer.put("locked-2"), return_exceptions=True
    )
    assert b == "b" and isinstance(locked, OperationalError)
    assert sorted(seen) == [["b"], ["locked-2"], ["locked-2"]]
    later = clock.monotonic() + LOCKED_SECONDS + 1
    with mock.patch.object(clock, "monotonic", lambda: later):
        seen.clear()
        c, _ = await asyncio.gather(writer.put("c"), writer.put("locked-3"), return_exceptions=True)
    assert c == "c"
    assert ["c", "locked-3"] in seen, "after that it is tried with the others again"


async def test_a_group_that_is_free_again_is_written_with_the_others(writer) -> None:
    await put_behind(writer, "a", "locked-1")
    with mock.patch.dict(LOCKED, {"locked-2": False}):
        assert await writer.put("locked-2") == "locked-2"
    assert not writer._is_locked("locked")


async def test_a_lost_acknowledgement_of_a_group_is_asked_about_by_each(writer) -> None:
    await put_behind(writer, "a", "locked-1")
    with mock.patch.dict(LOCKED, {"locked-2": False}), at_commit("write", LANDED) as fault:
        assert await writer.put("locked-2") == "locked-2!"
    assert (fault.fired, confirmed) == (1, ["locked-2"])


async def test_a_group_that_is_poisoned_is_written_one_by_one(writer) -> None:
    names = ["a", "locked-1", "poison", "poison-2"]
    a, locked, *bad = await put_behind(writer, *names)
    assert a == "a" and isinstance(locked, OperationalError)
    assert all(isinstance(each, DataError) for each in bad)


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
