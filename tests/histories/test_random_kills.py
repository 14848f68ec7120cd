"""Random histories: many operations, kernels killed at random commits; nothing may contradict.

A seed gives one plan of kills and repeats; which request meets which kill is up to the machine.
"""

import random
from concurrent.futures import Future

import pytest

from tests.histories.contradictions import contradictions
from tests.support.client import Answer, Client
from tests.support.house import House
from tests.support.kernel_process import KernelProcess, Place
from tests.support.wait import wait_until

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")

VERBS = ("admit", "dispatch", "save_results", "settle")
ROUNDS = 4
OPERATIONS_PER_ROUND = 6


@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_history_of_kills_contradicts_no_promise(house: House, seed: int) -> None:
    dice = random.Random(seed)
    operations: list[str] = []
    for number in range(ROUNDS):
        operations += [house.operation(f"op{number}.{n}") for n in range(OPERATIONS_PER_ROUND)]
        place: Place = (dice.choice(VERBS), dice.choice(("before", "after")), dice.randint(1, 3))
        kernel = house.kernel(stops=[place], must_stop=False)
        repeats = dice.sample(operations, OPERATIONS_PER_ROUND // 2)
        posted = _post_all(house.client(kernel), operations[-OPERATIONS_PER_ROUND:] + repeats)
        _wait_for_the_end(kernel, place, posted)
        house.kill(kernel)

    last = house.kernel()
    wait_until(
        lambda: (
            not house.rows(
                "SELECT 1 FROM bz_usage_requests WHERE result_state = 'dispatched'"
                " OR (billing_state = 'pending' AND usage_text <> '')"
            )
        ),
        30,
        about="every lease has ended and everything that can be settled is",
        look_every=0.1,
    )
    for answer in _post_all(house.client(last), operations):
        answer.result()
    assert contradictions(house) == []
    house.verify()


def _post_all(client: Client, operations: list[str]) -> list["Future[Answer]"]:
    return [client.post_later(operation) for operation in operations]


def _wait_for_the_end(kernel: KernelProcess, place: Place, posted: list["Future[Answer]"]) -> None:
    """Until the kernel stands at its place, or has answered everything."""
    wait_until(
        lambda: kernel.has_stopped(place[0], place[1]) or all(each.done() for each in posted),
        60,
        about=f"the kernel stands at {place}, or has answered",
    )
