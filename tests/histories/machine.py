"""Random histories as rules for hypothesis: every act of tests/support/history_acts.py is one.

What is worth more comes up more often: an act has as many rules as its weight.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.history_replay import sentence
from tests.support.history_work import PROMPTS
from tests.support.history_world import ACTS, Plan, World
from tests.support.sizes import sized

EVERYDAY_STEPS = 20
STEPS = sized(EVERYDAY_STEPS, 40)
WEIGHTS = {
    **dict.fromkeys(("decide", "answers", "say_of_a_call", "replay"), 5),
    **dict.fromkeys(("submit", "job", "message", "tick", "resolve", "thaw"), 3),
    **dict.fromkeys(("repeat", "decide_again", "read", "dispatch"), 2),
}


class Broken(Exception):
    """A history broke a promise: what was raised, and the plan that shows it."""

    def __init__(self, error: Exception, plan: Plan):
        self.error, self.text, self.plan = error, sentence(error), plan
        super().__init__(self.text)


def run_histories(
    *,
    tables: list[str],
    number: int,
    count: int,
    steps: int = STEPS,
    seen: Callable[[World], None] = lambda world: None,
) -> None:
    """`count` histories drawn from the seed `number`, on the current database. Raises Broken."""
    broken: list[Broken] = []
    options = settings(
        max_examples=count,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # a plan is made shorter by playing it: history_replay.py
    )
    machine = seed(number)(_machine(tables, seen, broken))
    try:
        run_state_machine_as_test(machine, settings=options)
    except BaseException:
        if broken:
            raise broken[0] from None
        raise


def _machine(
    tables: list[str], seen: Callable[[World], None], broken: list[Broken]
) -> type[RuleBasedStateMachine]:
    class History(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.is_broken = False
            self.world = World(tables=tables)
            self.world.open()

        @initialize(prompt=st.sampled_from(PROMPTS))
        def begins_with_a_job(self, prompt: str) -> None:
            self.does("job", at=0, prompt=prompt, meets="", provider="ok")

        def does(self, name: str, **arguments: Any) -> None:
            self.noting(lambda: self.world.step(name, **arguments))

        def noting(self, act: Callable[[], None]) -> None:
            try:
                act()
            except Exception as error:
                self.is_broken = True
                broken.append(Broken(error, list(self.world.plan)))
                raise

        def teardown(self) -> None:
            try:
                if not self.is_broken:
                    self.noting(self.world.end)
                    seen(self.world)
            finally:
                self.world.close()

    for name in ACTS:
        for copy in range(WEIGHTS.get(name, 1)):
            setattr(History, f"{name}_{copy}", _rule(name))
    return History


def _rule(name: str) -> Any:
    act = ACTS[name]

    def step(self: Any, **arguments: Any) -> None:
        self.does(name, **arguments)

    step.__name__ = name
    values: dict[str, Any] = {
        key: st.sampled_from(allowed) for key, allowed in act.arguments.items()
    }
    return precondition(lambda self: bool(act.is_possible(self.world)))(rule(**values)(step))
