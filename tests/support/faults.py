"""The record of a run's faults: planned, fired, violations. Printed as one line at its end."""

from collections.abc import Callable
from dataclasses import dataclass, field


class Violation(AssertionError):
    """A promise of K2 was broken; the text says which, and by what."""


@dataclass(frozen=True)
class Fault:
    """One planned fault and the fact that shows that it happened."""

    name: str
    has_fired: Callable[[], bool]


@dataclass
class FaultRecord:
    """Counts over all cases of a run. Seeded mutants are counted apart: they must violate."""

    cases: int = 0
    planned: int = 0
    fired: int = 0
    kills: int = 0
    violations: list[str] = field(default_factory=list)
    mutants: int = 0
    mutants_killed: int = 0

    def line(self) -> str:
        """`crash: 21 cases, 25 faults planned, 25 fired, 18 processes killed, 0 violations`."""
        text = (
            f"crash: {self.cases} cases, {self.planned} faults planned, {self.fired} fired,"
            f" {self.kills} processes killed, {len(self.violations)} violations"
        )
        if self.mutants:
            text += f"; {self.mutants} mutants seeded, {self.mutants_killed} killed"
        return text
