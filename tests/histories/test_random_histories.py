"""Random histories of requests, jobs, decisions and messages: nothing may contradict a promise.

Each history runs real kernels in this process, on this run's database, under a clock of its own:
they are killed at commits, lose acknowledgements, hang past their leases and come back, and are
replaced. After each act and at the end a model of its own looks at rows, calls and answers.

`make test` plays the same histories each time, so that a red run is about a change and not about
luck. `make crash` draws new ones, so that time finds what nobody thought of. Both print the seed.
"""

import random
from collections import Counter

import pytest

from kernel.models import DeliveryAttempt
from tests.histories.machine import Broken, run_histories
from tests.support.faults import NOT_REACHED, FaultRecord
from tests.support.history_acts import ACTS
from tests.support.history_facts import RETAINED_SECONDS, Violation
from tests.support.history_process import FAULTS, KILL_AFTER, VANISHED, CommitFault
from tests.support.history_replay import sentence, shortened, told
from tests.support.history_world import World
from tests.support.sizes import sized

FIXED_SEED = 20_260_302
SEED = sized(FIXED_SEED, random.SystemRandom().randrange(2**32))
CHUNK = 25  # histories of one test
EVERYDAY_HISTORIES = 200
# `make crash` runs this file twice, side by side: 2,000 histories.
CHUNKS = sized(EVERYDAY_HISTORIES, 1_000) // CHUNK
SHORTEN_SECONDS = 60
# A chunk takes a minute; four such runs beside each other on two cores take many.
pytestmark = pytest.mark.timeout(1800)

done: Counter[str] = Counter()  # over all chunks: acts, and faults that fired


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_random_history_contradicts_a_promise(
    kernel_db: None, tables_to_empty: list[str], fault_record: FaultRecord, chunk: int
) -> None:
    seed = SEED + chunk
    print(f"random histories: seed {seed}")

    missed: list[str] = []

    def seen(world: World) -> None:
        done.update(world.counts)
        fault_record.cases += 1
        missed.extend(count_faults(world, fault_record))

    try:
        run_histories(tables=tables_to_empty, number=seed, count=CHUNK, seen=seen)
    except Broken as broken:
        fault_record.violations.append(broken.text)
        plan, error = shortened(
            broken.plan, broken.error, tables=tables_to_empty, seconds=SHORTEN_SECONDS
        )
        pytest.fail(told(plan, text=sentence(error), seed=seed), pytrace=False)
    assert not missed, f"due and never fired: {missed}"


def count_faults(world: World, record: FaultRecord) -> list[str]:
    """Put a history's faults on the record; those that were due and did not fire.

    Where the plan's commit never came (the process died of something else, the history ended) there
    was no fault: these are counted beside.
    """
    due = [fault for fault in world.faults if fault.is_due]
    fired = [fault.what for fault in due if fault.fired]
    done.update(fired)
    record.planned += len(due)
    record.fired += len(fired)
    record.beside[NOT_REACHED] += len(world.faults) - len(due)
    return [fault.what for fault in due if not fault.fired]


def test_a_fault_that_was_due_and_did_not_fire_is_missed(
    kernel_db: None, tables_to_empty: list[str]
) -> None:
    record = FaultRecord()
    with World(tables=tables_to_empty) as world:
        process = world.process(0)
        world.plan_fault(process, CommitFault(KILL_AFTER, 1))
        process.fault = None  # it will not happen
        world.plan_fault(process, CommitFault(VANISHED, 10_000))
        world.step("message", at=0, receiver="ok")
        assert count_faults(world, record) == [KILL_AFTER]
    assert (record.planned, record.fired, record.beside[NOT_REACHED]) == (1, 0, 1)


def test_what_retention_takes_may_go_when_it_is_old_and_not_before(
    kernel_db: None, tables_to_empty: list[str]
) -> None:
    with World(tables=tables_to_empty) as world:
        world.step("message", at=0, receiver="ok")
        world.run(3.0)
        world.facts.check()
        assert world.facts.now["attempts"]
        world.clock.move(RETAINED_SECONDS)
        seen = world.facts.now
        DeliveryAttempt.objects.all().delete()
        world.facts.check()
        world.clock.move(-3600.0)
        world.facts.now = seen
        with pytest.raises(Violation, match="is gone"):
            world.facts.check()


def test_every_act_was_done_and_every_fault_has_fired() -> None:
    """A history that never meets anything shows nothing. Looks at what the chunks above did."""
    assert done, "run the whole file: this test has no histories of its own"
    never = [name for name in (*ACTS, *FAULTS) if not done[name]]
    assert not never, f"never happened: {never}"
