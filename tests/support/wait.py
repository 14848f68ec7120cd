"""Waiting for a fact: ask until it is true or a deadline passes; never sleep for luck."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 10.0
LOOK_SECONDS = 0.01


class NotInTime(AssertionError):
    """The fact did not become true before the deadline; the text names it and its last value."""


def wait_until(
    fact: Callable[[], T],
    deadline: float = DEADLINE_SECONDS,
    *,
    about: str = "",
    look_every: float = LOOK_SECONDS,
) -> T:
    """Ask `fact()` until it is truthy and return that value. `deadline` is seconds from now.

    Raises NotInTime; an exception of `fact` passes through at once. `about` names the fact.
    """
    end = time.monotonic() + deadline
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() >= end:
            raise NotInTime(_text(fact, deadline, about, value))
        time.sleep(look_every)


async def wait_until_async(
    fact: Callable[[], Awaitable[T] | T],
    deadline: float = DEADLINE_SECONDS,
    *,
    about: str = "",
    look_every: float = LOOK_SECONDS,
) -> T:
    """The same inside an event loop; `fact` may be a coroutine function."""
    end = time.monotonic() + deadline
    while True:
        value = fact()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if time.monotonic() >= end:
            raise NotInTime(_text(fact, deadline, about, value))
        await asyncio.sleep(look_every)


def _text(fact: Callable[..., object], deadline: float, about: str, value: object) -> str:
    name = about or getattr(fact, "__qualname__", repr(fact))
    return f"not true within {deadline} s: {name} (last value {value!r})"
