"""What an invariant is: a numbered promise about rows, and the query that finds its offenders."""

from collections.abc import Callable
from dataclasses import dataclass

from django.db import connection


@dataclass(frozen=True, slots=True)
class Offender:
    """One row that breaks an invariant: its id, and what shows it."""

    id: str
    what: str

    def __str__(self) -> str:
        return f"{self.id} ({self.what})"


Find = Callable[[int], list[Offender]]


@dataclass(frozen=True, slots=True)
class Invariant:
    """One promise about stored rows. `find(limit)` returns at most `limit` offenders."""

    number: int
    name: str
    says: str
    requirement: str
    find: Find

    @property
    def key(self) -> str:
        """`I11.consumed_is_the_sum_of_the_ledger`: the name of its stored report."""
        return f"I{self.number:02d}.{self.name}"


def select(text: str) -> Find:
    """A finder from a SELECT: its first column is the offender's id, the others show how."""

    def find(limit: int) -> list[Offender]:
        with connection.cursor() as cursor:
            cursor.execute(f"{text} LIMIT {int(limit)}")
            names = [column[0] for column in cursor.description or ()][1:]
            return [_offender(names, row) for row in cursor.fetchall()]

    return find


def _offender(names: list[str], row: tuple[object, ...]) -> Offender:
    shown = (f"{name}={value}" for name, value in zip(names, row[1:], strict=True))
    return Offender(str(row[0]), " ".join(shown))
