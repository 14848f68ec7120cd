"""Processes that run one verb at the same moment, round after round, and say what it came to.

racers = Racers(house, processes=4)
asked = racers.share("ask", [{"name": f"order-{n}"} for n in range(500)])
told = racers.race("decide", [[{...} for _ in range(4)] for _ in range(500)])  # round by round

Forked once. A round is a barrier of all their threads, and one call of the verb in each, on a
connection of its own. A KernelError is what a call came to: losing a race is an answer.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

from django.db import connection

from kernel.errors import KernelError
from tests.support.house import House
from tests.support.kernel_child import Plan, become, mutate
from tests.support.kernel_process import FORKS, KernelProcess
from tests.support.race_verbs import BEFORE, VERBS, Told

ROUND_SECONDS_MAX = 60.0
RACE_SECONDS_MAX = 900.0
Order = dict[str, Any]


# --- in the child ---------------------------------------------------------------------------------


def main(plan: Plan, pipe: Connection, barrier: Barrier, threads: int) -> None:
    """The life of a racer. Ends by a signal, or when the test's end of the pipe is closed."""
    os.setsid()
    become(plan)
    mutate(plan)
    with ThreadPoolExecutor(threads) as pool:
        pipe.send(("ready", 0))
        try:
            while True:
                verb, columns, is_race = pipe.recv()
                running = [
                    pool.submit(_run, verb, orders, barrier if is_race else None, place)
                    for place, orders in columns
                ]
                pipe.send(("told", [each.result() for each in running]))
        except (EOFError, OSError):
            os._exit(0)


def _run(verb: str, orders: list[Order], barrier: Barrier | None, place: int) -> list[Told]:
    """One thread's part, order by order; each begins with all the others where there is a race."""
    told = []
    for order in orders:
        if barrier:
            if verb in BEFORE:
                barrier.wait(ROUND_SECONDS_MAX)  # the round before has ended everywhere
                if place == 0:
                    BEFORE[verb](**order)
            barrier.wait(ROUND_SECONDS_MAX)
        try:
            told.append(VERBS[verb](**order))
        except KernelError as error:
            told.append(("refused", error.error_code))
        except BaseException:
            barrier.abort() if barrier else None
            raise
    connection.close()
    return told


# --- in the test ----------------------------------------------------------------------------------


class Racer(KernelProcess):
    """One of them, seen from its test."""

    main = staticmethod(main)

    def __init__(self, database_url: str, **how: Any):
        super().__init__(database_url, **how)
        self.answer: Future[list[list[Told]]] = Future()

    def ask(self, verb: str, columns: list[tuple[int, list[Order]]], *, is_race: bool) -> None:
        self.answer = Future()
        self._pipe.send((verb, columns, is_race))

    def heard(self, said: tuple[Any, ...]) -> None:
        super().heard(said)
        if said[0] == "told":
            self.answer.set_result(said[1])

    def ended(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(AssertionError("a racer ended; see its output"))


class Racers:
    """So many processes with so many threads each: `width` places of a race."""

    def __init__(self, house: House, *, processes: int, threads: int = 1):
        self.width = processes * threads
        self._threads = threads
        barrier = FORKS.Barrier(self.width)
        self._racers = [
            Racer(house.url, mutant=house.mutant, shares=(barrier, threads))
            for _ in range(processes)
        ]
        for racer in self._racers:
            house.keep(racer)
            racer.launch()
        for racer in self._racers:
            racer.wait_ready()
        assert len({racer.pid for racer in self._racers}) == processes

    def race(self, verb: str, rounds: Sequence[Sequence[Order]]) -> list[list[Told]]:
        """What each place came to, round by round."""
        columns = [list(column) for column in zip(*rounds, strict=True)]
        assert len(columns) == self.width
        return [list(row) for row in zip(*self._told(verb, columns, is_race=True), strict=True)]

    def share(self, verb: str, orders: Sequence[Order]) -> list[Told]:
        """The orders, shared out: what each came to, in their order."""
        columns = [list(orders[place :: self.width]) for place in range(self.width)]
        told = self._told(verb, columns, is_race=False)
        return [told[n % self.width][n // self.width] for n in range(len(orders))]

    def _told(self, verb: str, columns: list[list[Order]], *, is_race: bool) -> list[list[Told]]:
        placed = list(enumerate(columns))
        for number, racer in enumerate(self._racers):
            mine = placed[number * self._threads : (number + 1) * self._threads]
            racer.ask(verb, mine, is_race=is_race)
        return [each for racer in self._racers for each in racer.answer.result(RACE_SECONDS_MAX)]
