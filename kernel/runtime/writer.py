"""Group commit: concurrent calls of one verb share a transaction."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kernel import clock
from kernel.conf import conf
from kernel.errors import CommitOutcomeUnknown
from kernel.runtime.database import Database
from kernel.transactions import is_lock_wait, is_lost_connection, short_lock_waits

LOCKED_SECONDS = 10.0
Item = TypeVar("Item")
Out = TypeVar("Out")


@dataclass(slots=True)
class _Lane(Generic[Item, Out]):
    """What waits for its turn, and the turn that runs."""

    waiting: list[tuple[Item, "asyncio.Future[Out]"]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


class Writer(Generic[Item, Out]):
    """Collects items while the previous commit runs; at most `writer_batch_max` share the next.

    `verb(items=[...])` is one transaction and returns one outcome per item; an outcome that is an
    exception is raised to that item's caller alone. An error of the whole batch runs each item by
    itself, unless the database is away: then each caller gets it. When a commit's outcome is
    unknown, `confirm(items=[item])` asks the database by the item's own key and fence (A4); it must
    be safe to run whatever the lost commit did. `linger_seconds`: nobody waits for this verb, so it
    may wait for company before it takes a batch.

    `group(item)` names what a batch may wait for in vain, such as its account. A batch with a lock
    wait runs group by group, each with a short wait. The group that waits in vain again gets the
    error; for LOCKED_SECONDS its items run in a lane of their own, where nobody waits behind them.
    """

    def __init__(
        self,
        database: Database,
        verb: Callable[..., Sequence[Out | Exception]],
        *,
        confirm: Callable[..., Sequence[Out | Exception]],
        key: Callable[[Item], Any],
        group: Callable[[Item], str],
        linger_seconds: float = 0.0,
    ):
        self._database, self._verb, self._confirm, self._key = database, verb, confirm, key
        self._group = group
        self._linger_seconds = linger_seconds
        self._lane: _Lane[Item, Out] = _Lane()
        self._locked_lane: _Lane[Item, Out] = _Lane()
        self._locked_until: dict[str, float] = {}

    async def put(self, item: Item) -> Out:
        """Write `item` with whatever else is waiting. Shielded like every database call."""
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        lane = self._locked_lane if self._is_locked(self._group(item)) else self._lane
        lane.waiting.append((item, future))
        self._pump(lane)
        return await asyncio.shield(future)

    def _is_locked(self, group: str) -> bool:
        until = self._locked_until.get(group)
        if until is not None and until < clock.monotonic():
            del self._locked_until[group]
            return False
        return until is not None

    def _pump(self, lane: _Lane[Item, Out]) -> None:
        if lane.waiting and lane.task is None:
            lane.task = asyncio.get_running_loop().create_task(self._write(lane))

    async def _write(self, lane: _Lane[Item, Out]) -> None:
        batch: list[tuple[Item, asyncio.Future[Out]]] = []
        try:
            if self._linger_seconds and len(lane.waiting) < conf.writer_batch_max:
                await asyncio.sleep(self._linger_seconds)
            batch = lane.waiting[: conf.writer_batch_max]
            del lane.waiting[: len(batch)]
            batch.sort(key=lambda pair: self._key(pair[0]))
            items = [item for item, _ in batch]
            is_quick = lane is self._lane
            outcomes = await (self._run(items) if is_quick else self._run_by_group(items))
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                _resolve(future, outcome)
        except BaseException as error:
            for _, future in batch:
                _resolve(future, error)
            raise
        finally:
            lane.task = None
            self._pump(lane)

    async def _run(self, items: list[Item]) -> Sequence[Out | Exception]:
        try:
            return await self._database.in_tx(self._verb, items=items)
        except CommitOutcomeUnknown:
            return [await self._single(self._confirm, item) for item in items]
        except Exception as error:
            if is_lock_wait(error) and len(items) > 1:
                return await self._run_by_group(items)
            if len(items) == 1 or is_lost_connection(error):
                return [error] * len(items)
            return [await self._single(self._verb, item) for item in items]

    async def _run_by_group(self, items: list[Item]) -> Sequence[Out | Exception]:
        """Each group in a transaction of its own, with short waits; then it is known who waits."""
        places: dict[str, list[int]] = defaultdict(list)
        for place, item in enumerate(items):
            places[self._group(item)].append(place)
        outcomes: dict[int, Out | Exception] = {}
        for group, mine in places.items():
            found = await self._run_group(group, [items[place] for place in mine])
            outcomes.update(zip(mine, found, strict=True))
        return [outcomes[place] for place in range(len(items))]

    async def _run_group(self, group: str, items: list[Item]) -> Sequence[Out | Exception]:
        try:
            found = await self._database.in_tx(_briefly, write=self._verb, items=items)
        except CommitOutcomeUnknown:
            return [await self._single(self._confirm, item) for item in items]
        except Exception as error:
            if is_lock_wait(error):
                self._locked_until[group] = clock.monotonic() + LOCKED_SECONDS
            elif len(items) > 1 and not is_lost_connection(error):
                return [await self._single(self._verb, item) for item in items]
            return [error] * len(items)
        self._locked_until.pop(group, None)
        return found

    async def _single(self, verb: Callable[..., Sequence[Out | Exception]], item: Item) -> Any:
        tries = 0
        while True:
            tries += 1
            try:
                return (await self._database.in_tx(verb, items=[item]))[0]
            except CommitOutcomeUnknown as error:
                if tries >= 3:
                    return error
                verb = self._confirm
            except Exception as error:
                return error


def _briefly(
    *, write: Callable[..., Sequence[Out | Exception]], items: list[Item]
) -> Sequence[Out | Exception]:
    with short_lock_waits():
        return write(items=items)


def _resolve(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
        # The caller may have left; its exception must not be reported as never retrieved.
        future.exception()
    else:
        future.set_result(outcome)
