"""A timeline: the steps of one thing's life in order, with the time between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _

from console.formats import duration_text

SLOW_SECONDS = 60  # a gap this long is set in stronger type


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `at` None = not reached. Tone and icon as in statuses; facts are (label, value)."""

    title: str | Promise
    icon: str
    tone: str = "calm"
    at: datetime | None = None
    text: str | Promise = ""
    facts: Sequence[tuple[str | Promise, Any]] = ()


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A step with the gap before it ('' for the first and for steps not reached)."""

    step: Step
    gap: str
    is_slow: bool
    is_open: bool  # the step before it was reached and this one is awaited


def place(steps: Sequence[Step]) -> list[PlacedStep]:
    """Computes the gaps. A clock that went back shows a negative gap: evidence is not repaired."""
    placed: list[PlacedStep] = []
    last: datetime | None = None
    for step in steps:
        gap, slow = "", False
        if step.at is not None and last is not None:
            seconds = (step.at - last).total_seconds()
            gap, slow = (
                _("%(span)s later") % {"span": duration_text(seconds)},
                seconds >= SLOW_SECONDS,
            )
        before = placed[-1].step if placed else None
        is_open = step.at is None and before is not None and before.at is not None
        placed.append(PlacedStep(step, gap, slow, is_open))
        last = step.at or last
    return placed
