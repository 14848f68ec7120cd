"""What a check of the doctor found, and the last findings as stored rows."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from kernel import audit, clock
from kernel.checks import DOCTOR_PREFIX
from kernel.models import CheckReport
from kernel.transactions import reading, transaction

OK, WARNING, FAILURE = "ok", "warning", "failure"
LEVELS = (OK, WARNING, FAILURE)  # the index is the exit code


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its name, level, what was seen, and what to do ('' = nothing).

    Neither text ever holds a secret.
    """

    check: str
    level: str
    seen: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """A finding as it was stored, and when."""

    finding: Finding
    at: datetime


def judge(check: str, seen: object, *, good: bool, todo: str, otherwise: str = FAILURE) -> Finding:
    """ok where `good`, else `otherwise` with what to do."""
    return Finding(check, OK if good else otherwise, str(seen), "" if good else todo)


def listed(names: Sequence[str], *, most: int) -> str:
    """The first `most` names, and how many more there are; '' for none."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def worst(findings: Iterable[Finding]) -> str:
    """The worst level of all; ok when there are none."""
    return LEVELS[max((LEVELS.index(each.level) for each in findings), default=0)]


@transaction
def store_findings(*, findings: Sequence[Finding], actor: audit.Actor) -> None:
    """Keep these as the last ones, for Health; audited. AlreadyDone for a form sent before."""
    now = clock.db_now()
    rows = CheckReport.objects.filter(name__startswith=DOCTOR_PREFIX)
    rows.delete()
    CheckReport.objects.bulk_create(
        [
            CheckReport(
                name=f"{DOCTOR_PREFIX}{each.check}",
                offenders=LEVELS.index(each.level),
                sample_text=json.dumps([each.seen, each.todo]),
                checked_at=now,
            )
            for each in findings
        ]
    )
    audit.append_in_tx(
        actor=actor,
        action="doctor.run",
        kind="doctor",
        object_id="doctor",
        after={"worst": worst(findings), "checks": len(findings)},
    )


@reading
def last_findings() -> list[Kept]:
    """The stored findings, worst first. One query."""
    rows = CheckReport.objects.filter(name__startswith=DOCTOR_PREFIX)
    kept = []
    for row in rows.order_by("-offenders", "name"):
        seen, todo = json.loads(row.sample_text)
        name = row.name.removeprefix(DOCTOR_PREFIX)
        kept.append(Kept(Finding(name, LEVELS[row.offenders], seen, todo), row.checked_at))
    return kept
