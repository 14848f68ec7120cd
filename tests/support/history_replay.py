"""A plan of a history as text, played again, and made shorter while it still breaks something."""

import json
import time
from typing import Any

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


def what_breaks(plan: Plan, *, tables: list[str]) -> str:
    """Play a plan to its end; the sentence that says what it breaks, '' where all holds."""
    with World(tables=tables) as world:
        try:
            world.play(plan)
            world.end()
        except Exception as error:
            return str(error) or repr(error)
    return ""


def shortened(plan: Plan, *, tables: list[str], seconds: float) -> Plan:
    """A shorter plan that breaks something too, as far as `seconds` go."""
    until, size = time.monotonic() + seconds, max(len(plan) // 2, 1)
    while True:
        start = 0
        while start < len(plan):
            if time.monotonic() > until:
                return plan
            rest: Any = plan[:start] + plan[start + size :]
            if what_breaks(rest, tables=tables):
                plan = rest
            else:
                start += size
        if size == 1:
            return plan
        size //= 2


def told(plan: Plan, *, text: str, seed: int) -> str:
    """What a person needs: the promise, the seed, the plan, the command that plays it again."""
    steps = "\n".join(f"  {n:2}. {name} {arguments}" for n, (name, arguments) in enumerate(plan, 1))
    return (
        f"{text}\nseed {seed}, the plan:\n{steps}\n"
        f"Play it again:\n  python -m tests.histories.replay '{as_text(plan)}'"
    )
