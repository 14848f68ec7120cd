"""docs/crash-report.md: a section per database engine, each replaced by the run on that engine."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

COLUMNS = (
    "suite", "cases", "planned", "fired", "processes killed", "violations", "mutants",
    "mutants killed", "seconds", "commit",
)  # fmt: skip
SEEDED, SURVIVED = "Mutants: ", "Survived: "
ENGINES = ("SQLite", "MariaDB", "MySQL")
HEAD = """# Crash report

Written by `make crash`, which replaces the section of each engine it ran on. Every case asserts
that its fault fired. What is killed and cut, what must be true afterwards, what nobody has shown:
[fault model](fault-model.md). The last line of a section adds it up; there a mutant of two suites
counts once. Seconds are those of each suite; several of them run side by side.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """What one suite came to on one engine. A case that failed is a violation."""

    suite: str
    cases: int = 0
    planned: int = 0
    fired: int = 0
    kills: int = 0
    violations: int = 0
    seeded: int = 0
    killed: int = 0
    seconds: int = 0
    commit: str = ""

    @property
    def holds(self) -> bool:
        """Something ran, every planned fault fired, nothing was violated, no mutant survived."""
        return (
            self.cases > 0
            and self.fired == self.planned
            and self.violations == 0
            and self.killed == self.seeded
        )

    def numbers(self) -> list[int]:
        return [
            self.cases, self.planned, self.fired, self.kills, self.violations, self.seeded,
            self.killed, self.seconds,
        ]  # fmt: skip

    def cells(self) -> list[str]:
        return [self.suite, *map(_number, self.numbers()), self.commit]


@dataclass(frozen=True, slots=True)
class Section:
    """The last run of every suite on one engine. `server` begins with its name: "MariaDB 10.11"."""

    server: str
    date: str
    rows: list[Row]
    mutants: list[str] = field(default_factory=list)
    survivors: list[str] = field(default_factory=list)
    beside: Counter[str] = field(default_factory=Counter)

    @property
    def engine(self) -> str:
        return self.server.split()[0]

    @property
    def total(self) -> Row:
        """All suites together: a mutant of two suites is one."""
        sums = [sum(column) for column in zip(*(row.numbers() for row in self.rows), strict=True)]
        seeded = len(self.mutants)
        return Row(
            f"{self.engine} total",
            *sums[:5],
            seeded=seeded,
            killed=seeded - len(self.survivors),
            seconds=sums[-1],
        )

    @property
    def holds(self) -> bool:
        return bool(self.rows) and all(row.holds for row in self.rows)

    def text(self) -> str:
        lines = [f"## {self.server}", "", f"Run on {self.date}, full size.", ""]
        lines += [_line(COLUMNS), "|" + "---|" * len(COLUMNS)]
        lines += [_line(row.cells()) for row in [*self.rows, self.total]]
        if self.beside:
            counts = "; ".join(f"{_number(count)} {what}" for what, count in self.beside.items())
            lines += ["", f"Beside these: {counts}."]
        if self.mutants:
            lines += ["", f"{SEEDED}{_quoted(self.mutants)}."]
            lines += [f"{SURVIVED}{_quoted(self.survivors) or 'none'}."]
        return "\n".join(lines) + "\n"


def row_of(suite: str, *, record: Path, failed: int, seconds: float, commit: str = "") -> Row:
    """A suite's row from the record that its run left; a run that left none is a violation."""
    if not record.exists():
        return Row(suite, violations=max(failed, 1), seconds=round(seconds), commit=commit)
    counts = json.loads(record.read_text())
    return Row(
        suite,
        cases=counts["cases"],
        planned=counts["planned"],
        fired=counts["fired"],
        kills=counts["kills"],
        violations=max(len(counts["violations"]), failed),
        seeded=len(counts["mutants"]),
        killed=len(counts["mutants"]) - len(counts["survivors"]),
        seconds=round(seconds),
        commit=commit,
    )


def mutants_in(records: Iterable[Path]) -> tuple[list[str], list[str]]:
    """The mutants that these runs seeded, and those that survived."""
    found = [json.loads(path.read_text()) for path in records if path.exists()]
    seeded = {name for each in found for name in each["mutants"]}
    return sorted(seeded), sorted({name for each in found for name in each["survivors"]})


def beside_in(records: Iterable[Path]) -> Counter[str]:
    """What these runs counted beside their faults, together."""
    every: Counter[str] = Counter()
    for path in records:
        if path.exists():
            every.update(json.loads(path.read_text())["beside"])
    return every


def put(path: Path, section: Section) -> None:
    """Write the section into the report: in place of its engine's last one, others as they are."""
    kept = sections_in(path.read_text()) if path.exists() else {}
    kept[section.engine] = section.text()
    ordered = [kept[engine] for engine in ENGINES if engine in kept]
    path.write_text("\n".join([HEAD, total_line(ordered) + "\n", *ordered]))


def sections_in(text: str) -> dict[str, str]:
    """The sections of a report by engine."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    return {part.split()[1]: part.rstrip("\n") + "\n" for part in parts}


def total_line(sections: Iterable[str]) -> str:
    """All engines together, from the last line of each section's table; a mutant counts once."""
    lines = [line for text in sections for line in text.splitlines()]
    totals = [line for line in lines if " total | " in line]
    cells = [[int(cell.replace(",", "")) for cell in line.split("|")[2:-2]] for line in totals]
    cases, planned, fired, kills, violations, _, _, seconds = (
        _number(sum(column)) for column in zip(*cells, strict=True)
    )
    mutants, survivors = _names(lines, SEEDED), _names(lines, SURVIVED)
    return (
        f"Total: {len(totals)} engine{'s' if len(totals) > 1 else ''}, {cases} cases,"
        f" {planned} faults planned, {fired} fired,"
        f" {kills} processes killed, **{violations} violations**, {len(mutants)} mutants seeded,"
        f" {len(mutants - survivors)} killed, {seconds} seconds."
    )


def today(now: datetime) -> str:
    return f"{now:%Y-%m-%d}"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _names(lines: Iterable[str], head: str) -> set[str]:
    return {name for line in lines if line.startswith(head) for name in re.findall("`(.+?)`", line)}


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: int) -> str:
    return f"{value:,}"
