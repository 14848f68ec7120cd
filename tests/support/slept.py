"""A process that sleeps right after a commit: what it held may be over when it wakes."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from kernel import clock


def sleeps_after(
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    verb: str,
    *,
    seconds: float,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[int]:
    """The first call of `module.verb` ends this many seconds later, by the process's own clock.

    `meanwhile` is what others do in that time. Returns a list that gets an entry when it slept.
    """
    real_clock, real, slept = clock.monotonic, getattr(module, verb), []

    def slow(**values: Any) -> Any:
        found = real(**values)
        if not slept:
            meanwhile()
            slept.append(1)
        return found

    monkeypatch.setattr(module, verb, slow)
    monkeypatch.setattr(clock, "monotonic", lambda: real_clock() + seconds * len(slept))
    return slept
