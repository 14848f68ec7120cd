"""A plan of a history as text, played again, and made shorter while it still breaks something."""

import json
import time
from typing import Any

from tests.support.faults import Violation
from tests.support.history_world import Plan, World


def as_text(plan: Plan) -> str:
    """One line of JSON; what `python -m tests.histories.replay` takes."""
    return json.dumps(plan, separators=(",", ":"))


def from_text(text: str) -> Plan:
    """A plan from its text. ValueError when it is none."""
    value = json.loads(text)
    if not isinstance(value, list):
        raise ValueError("a plan is a list of [act, arguments]")
    return [(str(name), dict(arguments)) for name, arguments in value]


def breaks(plan: Plan, *, tables: list[str]) -> Exception | None:
    """Play a plan to its end; what it raised, None where all holds."""
    with World(tables=tables) as world:
        try:
            world.play(plan)
            world.end()
        except Exception as error:
            return error
    return None


def sentence(error: Exception | None) -> str:
    """What a person reads: the promise that a Violation names, else the error itself; '' of None.

    An error that is no Violation is a defect of the product or of the histories.
    """
    if error is None:
        return ""
    return (isinstance(error, Violation) and str(error)) or repr(error)


def what_breaks(plan: Plan, *, tables: list[str]) -> str:
    """The sentence that says what a plan breaks, '' where all holds."""
    return sentence(breaks(plan, tables=tables))


def shortened(
    plan: Plan, error: Exception, *, tables: list[str], seconds: float
) -> tuple[Plan, Exception]:
    """A shorter plan, as far as `seconds` go, and what that plan raises.

    Only an error of the same class counts: a broken promise is not shortened to a plan that stops
    at something else.
    """
    until, size = time.monotonic() + seconds, max(len(plan) // 2, 1)
    while True:
        start = 0
        while start < len(plan):
            if time.monotonic() > until:
                return plan, error
            rest: Any = plan[:start] + plan[start + size :]
            found = breaks(rest, tables=tables)
            if found is not None and type(found) is type(error):
                plan, error = rest, found
            else:
                start += size
        if size == 1:
            return plan, error
        size //= 2


def told(plan: Plan, *, text: str, seed: int) -> str:
    """What a person needs: the promise, the seed, the plan, the command that plays it again."""
    steps = "\n".join(f"  {n:2}. {name} {arguments}" for n, (name, arguments) in enumerate(plan, 1))
    return (
        f"{text}\nseed {seed}, the plan:\n{steps}\n"
        f"Play it again:\n  python -m tests.histories.replay '{as_text(plan)}'"
    )
