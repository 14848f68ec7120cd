"""The chains walked again: edits, gaps and reorders; cut tails against lines kept elsewhere (M2).

What is kept elsewhere is a heads file, an export as JSON lines, or the JSONL copy: each line names
a row and its hash. A row that such a line names and the database lacks was removed, wherever in its
chain it stood; or the database was restored to an earlier moment, and is older than the line or was
worked on since. Nobody can tell which from the rows alone. Everything is read page by page.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db.models import Max, OuterRef, Q, Subquery

from kernel.audit.trail import GENESIS, digest
from kernel.errors import InvalidInput
from kernel.ids import is_id
from kernel.models import AuditRow
from kernel.transactions import reading

PAGE_ROWS = 500
HEAD_FIELDS = ("id", "subject", "sequence", "sha256")
SUBJECT_CHARS_MAX = 160  # a kind and an id
CHANGED = "changed outside the product, or restored to an earlier moment and worked on since"
Tick = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ChainFault:
    """One finding: the subject, the sequence number and what does not fit.

    `is_older`: all that is wrong is that the chain ends before a kept row; lost time explains it.
    """

    subject: str
    sequence: int
    what: str
    is_older: bool = False


def quiet(count: int) -> None:
    """Tells nobody how far a walk came."""


def verify(*, subject_prefix: str = "", tick: Tick = quiet) -> Iterator[ChainFault]:
    """Walk every chain; what was edited, removed or reordered. A cut tail does not show.

    `tick` hears how many rows each page held.
    """
    subject, previous, expected = "", GENESIS, 1
    for row in _rows(subject_prefix, tick):
        if row.subject != subject:
            subject, previous, expected = row.subject, GENESIS, 1
        if row.sequence != expected:
            yield ChainFault(subject, row.sequence, f"expected row {expected}")
        elif row.previous_sha256 != previous:
            yield ChainFault(subject, row.sequence, "does not follow the row before it")
        if digest(row) != row.sha256:
            yield ChainFault(subject, row.sequence, "was edited")
        previous, expected = row.sha256, row.sequence + 1


def compare(lines: Iterable[bytes], *, tick: Tick = quiet) -> Iterator[ChainFault]:
    """Rows named by kept lines that the database lacks or holds otherwise: a cut tail shows here.

    An unfinished last line is left out. InvalidInput when a line names no row.
    """
    numbered = enumerate(lines, start=1)
    while page := list(islice(numbered, PAGE_ROWS)):
        kept = [_kept(number, raw) for number, raw in page if raw.endswith(b"\n")]
        held = _held(ids=[one["id"] for one in kept])
        lost: list[dict[str, Any]] = []
        for one in kept:
            found = held.get(one["id"])
            if found is None:
                lost.append(one)
            elif found != (one["subject"], one["sequence"], one["sha256"]):
                yield ChainFault(one["subject"], one["sequence"], "is another row than was kept")
        yield from _lost(lost)
        tick(len(page))


def heads(*, tick: Tick = quiet) -> Iterator[bytes]:
    """The last row of every chain as a line: keep them where the database's owner cannot write."""
    after = ""
    while page := _head_page(after=after):
        for values in page:
            yield json.dumps(values, separators=(",", ":")).encode() + b"\n"
        after = page[-1]["subject"]
        tick(len(page))


@reading
def count() -> int:
    """How many rows there are, for progress."""
    return AuditRow.objects.count()


def _kept(number: int, raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
        kept = {name: value[name] for name in HEAD_FIELDS}
    except (ValueError, TypeError, KeyError, RecursionError):
        kept = {}
    if not _names_a_row(kept):
        raise InvalidInput(f"line {number} names no audit row", field="against")
    return kept


def _names_a_row(kept: dict[str, Any]) -> bool:
    sequence = kept.get("sequence")
    return (
        is_id(kept.get("id"))
        and is_id(kept.get("subject"), chars_max=SUBJECT_CHARS_MAX)
        and isinstance(kept.get("sha256"), str)
        and isinstance(sequence, int)
        and not isinstance(sequence, bool)
        and sequence >= 1
    )


def _lost(kept: list[dict[str, Any]]) -> Iterator[ChainFault]:
    """Kept rows that are not here: behind the end of their chain, or out of its middle."""
    ends = _ends(subjects=[one["subject"] for one in kept]) if kept else {}
    for one in kept:
        end = ends.get(one["subject"], 0)
        if end < one["sequence"]:
            what = f"is gone: the chain here is older, it ends at row {end}"
            yield ChainFault(one["subject"], one["sequence"], what, is_older=True)
        else:
            what = f"is gone, though the chain here goes on to row {end}: {CHANGED}"
            yield ChainFault(one["subject"], one["sequence"], what)


@reading
def _ends(*, subjects: list[str]) -> dict[str, int]:
    chains = AuditRow.objects.filter(subject__in=subjects).values("subject")
    return {one["subject"]: one["top"] for one in chains.annotate(top=Max("sequence"))}


@reading
def _held(*, ids: list[str]) -> dict[str, tuple[str, int, str]]:
    rows = AuditRow.objects.filter(id__in=ids)
    return {
        row_id: (subject, sequence, sha256)
        for row_id, subject, sequence, sha256 in rows.values_list(
            "id", "subject", "sequence", "sha256"
        )
    }


def _rows(prefix: str, tick: Tick) -> Iterator[AuditRow]:
    subject, sequence = "", 0
    while page := _page(prefix=prefix, subject=subject, sequence=sequence):
        yield from page
        subject, sequence = page[-1].subject, page[-1].sequence
        tick(len(page))


@reading
def _page(*, prefix: str, subject: str, sequence: int) -> list[AuditRow]:
    # A driver that reads a whole result at once makes iterator() hold every row in memory.
    rows = AuditRow.objects.filter(subject__gte=subject)
    rows = rows.filter(Q(subject__gt=subject) | Q(sequence__gt=sequence))
    if prefix:
        rows = rows.filter(subject__startswith=prefix)
    return list(rows.order_by("subject", "sequence")[:PAGE_ROWS])


@reading
def _head_page(*, after: str) -> list[dict[str, Any]]:
    chains = AuditRow.objects.filter(subject__gt=after).order_by("subject").values("subject")
    subjects = [one["subject"] for one in chains.annotate(top=Max("sequence"))[:PAGE_ROWS]]
    top = AuditRow.objects.filter(subject=OuterRef("subject")).order_by("-sequence")
    rows = AuditRow.objects.filter(
        subject__in=subjects, sequence=Subquery(top.values("sequence")[:1])
    )
    return [dict(one) for one in rows.order_by("subject").values(*HEAD_FIELDS)]
