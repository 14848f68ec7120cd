"""The numbered database invariants: each a query that returns its offenders; none means it holds.

Each query is one statement, hence one snapshot: it may run beside live traffic. Used by the crash
suite, the histories and `manage.py db_verify`; Health shows the last stored result and never scans.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection

from kernel import clock
from kernel.approvals.invariants import APPROVALS
from kernel.checks import DOCTOR_PREFIX, Invariant, Offender, select
from kernel.conf import conf
from kernel.delivery.invariants import DELIVERIES
from kernel.jobs.invariants import JOBS
from kernel.models import CheckReport
from kernel.states import MACHINES
from kernel.tables import columns_by_table, unique_keys_of
from kernel.transactions import reading, transaction
from kernel.usage.invariants import USAGE

# The keys that decide races. Without one of them nothing else here means much.
UNIQUE_KEYS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("bz_usage_requests", ("account_id", "operation_id")),
    ("bz_usage_ledger", ("charge_of",)),
    ("bz_usage_bodies", ("request_id", "kind", "sequence")),
    ("bz_audit", ("subject", "sequence")),
    ("bz_tokens", ("secret_sha256",)),
    ("bz_jobs", ("account_id", "request_id")),
    ("bz_tool_calls", ("idempotency_key",)),
    ("bz_approvals", ("decision_id",)),
    ("bz_approval_continuations", ("decision_id",)),
    ("bz_delivery_attempts", ("notification_id", "number")),
    ("bz_delivery_dlq", ("replay_identity",)),
    ("bz_operation_items", ("operation_id", "object_id")),
)


@dataclass(frozen=True, slots=True)
class Report:
    """What one invariant found. `more`: there are offenders beyond those named."""

    invariant: Invariant
    offenders: tuple[Offender, ...]
    more: bool

    @property
    def holds(self) -> bool:
        return not self.offenders

    def __str__(self) -> str:
        if self.holds:
            return f"{self.invariant.key}: holds"
        tail = ", and more" if self.more else ""
        return f"{self.invariant.key}: {'; '.join(map(str, self.offenders))}{tail}"


@reading
def check_all(*, limit: int | None = None) -> list[Report]:
    """Ask every invariant and name at most `limit` offenders each (`check_offenders_max`).

    Reads only. Walks whole tables, except where an invariant says "newest".
    """
    most = limit or conf.check_offenders_max
    reports = []
    for invariant in INVARIANTS:
        found = invariant.find(most + 1)
        reports.append(Report(invariant, tuple(found[:most]), len(found) > most))
    return reports


@transaction
def store_reports(*, reports: Sequence[Report]) -> None:
    """Keep the result of check_all as the last one, for Health (CheckReport rows)."""
    now = clock.db_now()
    for report in reports:
        CheckReport.objects.update_or_create(
            name=report.invariant.key,
            defaults={
                "offenders": len(report.offenders),
                "sample_text": "" if report.holds else str(report),
                "checked_at": now,
            },
        )
    known = [report.invariant.key for report in reports]
    kept = CheckReport.objects.exclude(name__startswith=DOCTOR_PREFIX)
    kept.exclude(name__in=known).delete()


def _unknown_states(limit: int) -> list[Offender]:
    found: list[Offender] = []
    tables = set(connection.introspection.table_names())
    for machine in MACHINES:
        table, _, column = machine.column.partition(".")
        if table not in tables:
            continue  # its migration is not applied; db_verify says so by itself (H3)
        names = ", ".join(f"'{state.name}'" for state in machine.states)
        query = f"SELECT {machine.key}, {column} FROM {table} WHERE {column} NOT IN ({names})"
        found += select(query)(limit)
    return found[:limit]


def _missing_unique_keys(limit: int) -> list[Offender]:
    columns, keys = columns_by_table(connection), unique_keys_of(connection)
    return [
        Offender(table, f"no unique key on ({', '.join(wanted)})")
        for table, wanted in UNIQUE_KEYS
        # Where its migration, or that of its columns, is not applied, nothing is missing (H3).
        if columns.get(table, set()).issuperset(wanted) and (table, wanted) not in keys
    ][:limit]


INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        1,
        "unique_keys_exist",
        "The unique keys that decide races are in the database.",
        "A1, A14, C3, D1, D3, M2",
        _missing_unique_keys,
    ),
    Invariant(
        2,
        "states_are_known",
        "Every state is one of its machine's names.",
        "A7",
        _unknown_states,
    ),
    *USAGE,
    *APPROVALS,
    *JOBS,
    *DELIVERIES,
)
