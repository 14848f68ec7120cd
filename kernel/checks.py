"""What an invariant is: a numbered promise about rows, and the query that finds its offenders."""

from collections.abc import Callable
from dataclasses import dataclass

from django.db import connection

APPLIED = "SELECT COUNT(DISTINCT name) FROM django_migrations WHERE app = 'kernel'"
DOCTOR_PREFIX = "doctor."  # rows of CheckReport that are findings of kernel/doctor, no invariants


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


def since(migrations: tuple[str, ...], find: Find) -> Find:
    """`find`, which has nothing to ask before these migrations are applied (H3)."""

    def find_since(limit: int) -> list[Offender]:
        names = ", ".join(["%s"] * len(migrations))
        with connection.cursor() as cursor:
            cursor.execute(f"{APPLIED} AND name IN ({names})", migrations)
            return find(limit) if cursor.fetchone() == (len(migrations),) else []

    return find_since


def either(*finds: Find) -> Find:
    """The offenders of all of these, in this order."""

    def find_any(limit: int) -> list[Offender]:
        found: list[Offender] = []
        for find in finds:
            found += find(limit - len(found)) if len(found) < limit else []
        return found

    return find_any


def _offender(names: list[str], row: tuple[object, ...]) -> Offender:
    shown = (f"{name}={value}" for name, value in zip(names, row[1:], strict=True))
    return Offender(str(row[0]), " ".join(shown))
