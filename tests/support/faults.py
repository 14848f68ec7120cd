"""The record of a run's faults: planned, fired, violations. Printed as one line at its end."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# Where a run leaves its record for docs/crash-report.md; unset: nowhere.
RECORD_VARIABLE = "BAILING_PROOF_RECORD"
# What is counted beside the faults, in these words.
NOT_REACHED = "faults of histories whose commit never came"
LATE_COMMITS = "commits of dead processes that landed late"
LATE_AWAITED = "of these while the replacement waited for a lock"


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
    # Names of mutants, one for each case they were seeded in.
    seeded: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    # Facts that are neither planned nor fired, by what they are.
    beside: Counter[str] = field(default_factory=Counter)

    @property
    def mutants(self) -> list[str]:
        """The names of the mutants of this run, each once."""
        return sorted(set(self.seeded))

    @property
    def survivors(self) -> list[str]:
        """The mutants that some case was to kill and did not."""
        return [name for name in self.mutants if self.killed.count(name) < self.seeded.count(name)]

    def line(self) -> str:
        """`crash: 21 cases, 25 faults planned, 25 fired, 18 processes killed, 0 violations`."""
        text = (
            f"crash: {self.cases} cases, {self.planned} faults planned, {self.fired} fired,"
            f" {self.kills} processes killed, {len(self.violations)} violations"
        )
        if self.mutants:
            killed = len(self.mutants) - len(self.survivors)
            text += f"; {len(self.mutants)} mutants seeded, {killed} killed"
        return text + "".join(f"; {count} {what}" for what, count in self.beside.items())

    def write(self, path: Path) -> None:
        """Leave the counts as JSON, for the report."""
        counts = {
            "cases": self.cases,
            "planned": self.planned,
            "fired": self.fired,
            "kills": self.kills,
            "violations": self.violations,
            "mutants": self.mutants,
            "survivors": self.survivors,
            "beside": self.beside,
        }
        path.write_text(json.dumps(counts))
