"""Invariants that look inside rows: bodies hashed again, charges derived again. Newest rows only.

The bounds are `check_sample_rows` and `check_sample_bytes_max`.
"""

import hashlib
import json
from decimal import Decimal

from django.db import connection

from kernel.checks import Offender
from kernel.conf import conf
from kernel.models import AuditRow, LedgerRow, Request
from kernel.states import Result
from kernel.usage import pricing

CORRECT = "request.correct"
CANCELS = frozenset({"request.cancel"})
RESOLUTIONS = frozenset({"request.resolve_unknown", "request.resolve_pending", "request.write_off"})


def wrong_result_bodies(limit: int) -> list[Offender]:
    """Newest results whose stored bytes do not have the stored sha256 and length (A6)."""
    rows = Request.objects.order_by("-updated_at", "-id").values_list("id", "result_bytes")
    wrong: list[Offender] = []
    left = conf.check_sample_bytes_max
    for request_id, size in rows[: conf.check_sample_rows]:
        left -= size or 0
        if left < 0:
            break
        if size is not None and (what := _body_fault(request_id)):
            wrong.append(Offender(request_id, what))
    return wrong[:limit]


def _body_fault(request_id: str) -> str:
    # One statement, one snapshot: the row and its pieces are of the same moment.
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT r.result_sha256, r.result_bytes, b.data FROM bz_usage_requests r"
            " JOIN bz_usage_bodies b ON b.request_id = r.id AND b.kind = 'result'"
            " WHERE r.id = %s AND r.purged_at IS NULL ORDER BY b.sequence",
            [request_id],
        )
        rows = cursor.fetchall()
    if not rows:
        return ""  # purged meanwhile; a missing body is the offender of another invariant
    body = b"".join(bytes(data) for _, _, data in rows)
    if hashlib.sha256(body).hexdigest() != rows[0][0]:
        return "the stored bytes do not have the stored sha256"
    return "" if len(body) == rows[0][1] else f"{len(body)} bytes stored, {rows[0][1]} noted"


def unexplained_charges(limit: int) -> list[Offender]:
    """Newest charges that their own lines and multiplier do not lead to (A13)."""
    # Ledger ids sort by time, so the primary key serves the order.
    rows = LedgerRow.objects.filter(kind="charge").order_by("-id")[: conf.check_sample_rows]
    wrong = [row for row in rows if not _follows_from_its_lines(row)]
    return [Offender(row.id, f"amount_nano={row.amount_nano}") for row in wrong][:limit]


def _follows_from_its_lines(row: LedgerRow) -> bool:
    try:
        facts = json.loads(row.lines_text)
        lines = pricing.lines_from_text(json.dumps(facts["lines"]))
        total = pricing.total_usd(lines)
        return (
            all(_multiplies(line) for line in lines)
            and Decimal(facts["reference_usd"]) == total
            and pricing.charge_nano(total, row.multiplier_millionths) == row.amount_nano
        )
    except (ValueError, KeyError, TypeError, ArithmeticError):
        return False


def _multiplies(line: pricing.Line) -> bool:
    return line.count * Decimal(line.usd_per_million) == Decimal(line.amount_usd) * 1_000_000


def unaudited_acts(limit: int) -> list[Offender]:
    """Newest cancelled or resolved requests without the audit row of that act (L2, M2)."""
    rows = Request.objects.order_by("-updated_at", "-id")
    newest = rows.values_list("id", "result_state", "resolved_at")[: conf.check_sample_rows]
    needed = [
        *((row_id, CANCELS) for row_id, state, _ in newest if state == Result.CANCELLED),
        *((row_id, RESOLUTIONS) for row_id, _, resolved_at in newest if resolved_at is not None),
    ]
    subjects = {f"request:{row_id}" for row_id, _ in needed}
    audited = set(
        AuditRow.objects.filter(subject__in=subjects).values_list("subject", "action").distinct()
    )
    return [
        Offender(row_id, f"no audit row {' or '.join(sorted(actions))}")
        for row_id, actions in needed
        if not any((f"request:{row_id}", action) in audited for action in actions)
    ][:limit]


def unaudited_corrections(limit: int) -> list[Offender]:
    """Newest corrections that no audit row of their request names (A11b, M2)."""
    newest = LedgerRow.objects.filter(kind="correction").order_by("-id")
    rows = list(newest.values_list("id", "request_id")[: conf.check_sample_rows])
    acts = AuditRow.objects.filter(
        subject__in={f"request:{request_id}" for _, request_id in rows}, action=CORRECT
    )
    named = {_ledger_id(text) for text in acts.values_list("after_text", flat=True)}
    return [
        Offender(row_id, f"no audit row {CORRECT}") for row_id, _ in rows if row_id not in named
    ][:limit]


def _ledger_id(after_text: str) -> str:
    try:
        return str(json.loads(after_text)["ledger_id"])
    except (ValueError, KeyError, TypeError):
        return ""
