"""Group commit: concurrent calls of one verb share a transaction."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from kernel.conf import conf
from kernel.errors import CommitOutcomeUnknown, Unavailable
from kernel.runtime.database import Database
from kernel.transactions import is_lock_wait, is_lost_connection, short_lock_waits

ASIDE_MAX = 200  # calls that wait aside; beyond it they are refused
GROUPS_ASIDE_MAX = 1000
Item = TypeVar("Item")
Out = TypeVar("Out")


@dataclass(slots=True)
class _Call(Generic[Item, Out]):
    """An item, what its transaction may have to wait for, and who waits for its outcome."""

    item: Item
    group: str
    future: "asyncio.Future[Out]"


@dataclass(slots=True)
class _Lane(Generic[Item, Out]):
    """Calls that wait for their turn, and the turn that runs."""

    calls: list[_Call[Item, Out]] = field(default_factory=list)
    turn: asyncio.Task[None] | None = None


class Writer(Generic[Item, Out]):
    """Collects items while the previous commit runs; at most `writer_batch_max` share the next.

    `verb(items=[...])` is one transaction and returns one outcome per item; an outcome that is an
    exception is raised to that item's caller alone. When a commit's outcome is unknown,
    `confirm(items=[item])` asks the database by the item's own key and fence (A4); it must be safe
    to run whatever the lost commit did. When the database is away each caller gets the error.
    `linger_seconds`: nobody waits for this verb; it may wait for company before it takes a batch.

    Any other error of the whole batch is somebody's own. Then it runs again aside, in a second lane
    beside the next batches: group by group with a short lock wait, and item by item where a group
    fails. A group is what may be locked, such as an account. One that waited in vain stays aside
    until it is written, so that nobody waits for it twice.
    """

    def __init__(
        self,
        database: Database,
        verb: Callable[..., Sequence[Out | Exception]],
        *,
        confirm: Callable[..., Sequence[Out | Exception]],
        key: Callable[[Item], Any],
        linger_seconds: float = 0.0,
    ):
        self._database, self._verb, self._confirm, self._key = database, verb, confirm, key
        self._linger_seconds = linger_seconds
        self._quick: _Lane[Item, Out] = _Lane()
        self._aside: _Lane[Item, Out] = _Lane()
        self._waited: dict[str, int] = {}  # by group that is to go aside: its waits there in vain

    async def put(self, item: Item, *, group: str = "") -> Out:
        """Write `item` with whatever else is waiting. Shielded like every database call.

        Unavailable when too many wait aside already.
        """
        lane = self._aside if group in self._waited else self._quick
        if lane is self._aside and len(lane.calls) >= ASIDE_MAX:
            raise Unavailable("Too many calls wait for a row that another transaction has locked.")
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        lane.calls.append(_Call(item, group, future))
        self._pump(lane)
        return await asyncio.shield(future)

    def _pump(self, lane: _Lane[Item, Out]) -> None:
        if lane.calls and lane.turn is None:
            lane.turn = asyncio.get_running_loop().create_task(self._take_turn(lane))

    async def _take_turn(self, lane: _Lane[Item, Out]) -> None:
        batch: list[_Call[Item, Out]] = []
        try:
            if lane is self._quick:
                if self._linger_seconds and len(lane.calls) < conf.writer_batch_max:
                    await asyncio.sleep(self._linger_seconds)
                self._move_aside([call for call in lane.calls if call.group in self._waited])
                lane.calls = [call for call in lane.calls if call.group not in self._waited]
            batch = lane.calls[: conf.writer_batch_max]
            del lane.calls[: len(batch)]
            batch.sort(key=lambda call: self._key(call.item))
            if lane is self._quick:
                await self._write_together(batch)
            else:
                await self._write_by_group(batch)
        except BaseException as error:
            _resolve(batch, [error] * len(batch))
            raise
        finally:
            lane.turn = None
            self._pump(lane)

    async def _write_together(self, batch: list[_Call[Item, Out]]) -> None:
        if not batch:
            return
        try:
            outcomes = await self._database.in_tx(self._verb, items=[call.item for call in batch])
        except CommitOutcomeUnknown:
            outcomes = await self._confirmed(batch)
        except Exception as error:
            if is_lock_wait(error):
                self._waited.update({call.group: 0 for call in batch})
            if len(batch) > 1 and not is_lost_connection(error):
                self._move_aside(batch)
                return
            outcomes = [error] * len(batch)
        _resolve(batch, outcomes)

    def _move_aside(self, calls: list[_Call[Item, Out]]) -> None:
        self._aside.calls += calls
        self._pump(self._aside)

    async def _write_by_group(self, batch: list[_Call[Item, Out]]) -> None:
        groups: dict[str, list[_Call[Item, Out]]] = defaultdict(list)
        for call in batch:
            groups[call.group].append(call)
        # Who was only in the same batch as what is locked goes first.
        for group in sorted(groups, key=lambda group: self._waited.get(group, 0)):
            _resolve(groups[group], await self._write_group(group, groups[group]))

    async def _write_group(
        self, group: str, calls: list[_Call[Item, Out]]
    ) -> Sequence[Out | Exception]:
        items = [call.item for call in calls]
        try:
            outcomes = await self._database.in_tx(_briefly, write=self._verb, items=items)
        except CommitOutcomeUnknown:
            outcomes = await self._confirmed(calls)
        except Exception as error:
            if is_lock_wait(error):
                self._has_waited(group)
                return [error] * len(calls)
            if len(calls) > 1 and not is_lost_connection(error):
                return await self._write_one_by_one(group, items)
            outcomes = [error] * len(calls)
        self._waited.pop(group, None)
        return outcomes

    async def _write_one_by_one(self, group: str, items: list[Item]) -> Sequence[Out | Exception]:
        outcomes: list[Out | Exception] = []
        brief = partial(_briefly, write=self._verb)
        for item in items:
            outcome = await self._single(brief, item)
            outcomes.append(outcome)
            if isinstance(outcome, Exception) and is_lock_wait(outcome):
                self._has_waited(group)
                return outcomes + [outcome] * (len(items) - len(outcomes))
        self._waited.pop(group, None)
        return outcomes

    def _has_waited(self, group: str) -> None:
        waits = self._waited.pop(group, 0)
        self._waited[group] = waits + 1
        while len(self._waited) > GROUPS_ASIDE_MAX:  # the oldest is tried with the others again
            del self._waited[next(iter(self._waited))]

    async def _confirmed(self, calls: list[_Call[Item, Out]]) -> Sequence[Out | Exception]:
        return [await self._single(self._confirm, call.item) for call in calls]

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
    *, write: Callable[..., Sequence[Out | Exception]], items: Sequence[Item]
) -> Sequence[Out | Exception]:
    with short_lock_waits():
        return write(items=items)


def _resolve(calls: Sequence[_Call[Any, Any]], outcomes: Sequence[Any]) -> None:
    for call, outcome in zip(calls, outcomes, strict=True):
        if call.future.done():
            continue
        if isinstance(outcome, BaseException):
            call.future.set_exception(outcome)
            # The caller may have left; its exception must not be reported as never retrieved.
            call.future.exception()
        else:
            call.future.set_result(outcome)
