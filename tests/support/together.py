"""Races of verbs in threads of this process, each on its own connection, started by a barrier."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kernel.errors import KernelError
from tests.support.schemas import django_on

BARRIER_SECONDS = 60.0
Step = Callable[[], Any]


def race(url: str, rounds: Sequence[Sequence[Step]]) -> list[list[Any]]:
    """Run the steps of each round at once, one thread per place; their results, round by round.

    A KernelError is a result: losing a race is an answer. Any other error is raised. A round begins
    when the one before has ended in every thread.
    """
    width = len(rounds[0])
    barrier = threading.Barrier(width)

    def run(place: int) -> list[Any]:
        results = []
        with django_on(url):
            for steps in rounds:
                barrier.wait(BARRIER_SECONDS)
                try:
                    results.append(steps[place]())
                except KernelError as error:
                    results.append(error)
                except BaseException:
                    barrier.abort()
                    raise
        return results

    with ThreadPoolExecutor(width) as threads:
        columns = list(threads.map(run, range(width)))
    return [list(row) for row in zip(*columns, strict=True)]
