"""Group commit: concurrent calls of one verb share a transaction."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from kernel.conf import conf
from kernel.errors import CommitOutcomeUnknown
from kernel.runtime.database import Database
from kernel.transactions import is_lock_wait, is_lost_connection

Item = TypeVar("Item")
Out = TypeVar("Out")


class Writer(Generic[Item, Out]):
    """Collects items while the previous commit runs; at most `writer_batch_max` share the next.

    `verb(items=[...])` is one transaction and returns one outcome per item; an outcome that is an
    exception is raised to that item's caller alone. An error of the whole batch runs each item by
    itself, unless the database is away: then each caller gets it. After a lock wait
    `unless_held(items=[...])` runs instead, the same transaction that waits for no lock: whoever
    needs what is held gets an error, the others of the batch are written. When a commit's outcome
    is unknown, `confirm(items=[item])` asks the database by the item's own key and fence (A4); it
    must be safe to run whatever the lost commit did. `linger_seconds`: nobody waits for this verb,
    so it may wait for company before it takes a batch.
    """

    def __init__(
        self,
        database: Database,
        verb: Callable[..., Sequence[Out | Exception]],
        *,
        confirm: Callable[..., Sequence[Out | Exception]],
        key: Callable[[Item], Any],
        unless_held: Callable[..., Sequence[Out | Exception]] | None = None,
        linger_seconds: float = 0.0,
    ):
        self._database, self._verb, self._confirm, self._key = database, verb, confirm, key
        self._unless_held = unless_held
        self._waiting: list[tuple[Item, asyncio.Future[Out]]] = []
        self._linger_seconds = linger_seconds
        self._task: asyncio.Task[None] | None = None

    async def put(self, item: Item) -> Out:
        """Write `item` with whatever else is waiting. Shielded like every database call."""
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._pump()
        return await asyncio.shield(future)

    def _pump(self) -> None:
        if self._waiting and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        batch: list[tuple[Item, asyncio.Future[Out]]] = []
        try:
            if self._linger_seconds and len(self._waiting) < conf.writer_batch_max:
                await asyncio.sleep(self._linger_seconds)
            batch = self._waiting[: conf.writer_batch_max]
            del self._waiting[: len(batch)]
            batch.sort(key=lambda pair: self._key(pair[0]))
            outcomes = await self._run([item for item, _ in batch])
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                _resolve(future, outcome)
        except BaseException as error:
            for _, future in batch:
                _resolve(future, error)
            raise
        finally:
            self._task = None
            self._pump()

    async def _run(self, items: list[Item]) -> Sequence[Out | Exception]:
        outcomes, error = await self._together(self._verb, items)
        if error and self._unless_held and len(items) > 1 and is_lock_wait(error):
            outcomes, error = await self._together(self._unless_held, items)
        if error is None:
            return outcomes
        if len(items) == 1 or is_lost_connection(error):
            return [error] * len(items)
        return [await self._single(self._verb, item) for item in items]

    async def _together(
        self, verb: Callable[..., Sequence[Out | Exception]], items: list[Item]
    ) -> tuple[Sequence[Out | Exception], Exception | None]:
        """What became of each, or the error of the whole batch, of which nothing was written."""
        try:
            return await self._database.in_tx(verb, items=items), None
        except CommitOutcomeUnknown:
            return [await self._single(self._confirm, item) for item in items], None
        except Exception as error:
            return [], error

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


def _resolve(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
        # The caller may have left; its exception must not be reported as never retrieved.
        future.exception()
    else:
        future.set_result(outcome)
