"""The plans of the approvals' queries: one index serves filter and order, no sorting (C7)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from kernel import approvals, clock
from kernel.approvals import continuations, decisions
from kernel.models import Approval, Continuation
from tests.usage.test_explain import plan_of

ROWS = 3000
STATES = ["consumed"] * 16 + ["denied", "expired", "approved", "open"]
NOW = clock.now()


def approval(number: int) -> Approval:
    at, state = NOW - timedelta(seconds=ROWS - number), STATES[number % len(STATES)]
    return Approval(
        id=f"apr_{number:06d}",
        account_id=f"acct-{number % 5}",
        job_id=f"job_{number // 3}",
        request_id=f"req-{number}",
        tool=f"tool-{number % 4}",
        arguments_text="{}",
        arguments_sha256="0" * 64,
        risk="low",
        requested_by="user:x",
        state=state,
        decision="" if state == "open" else "approved",
        decision_id=None if state == "open" else f"dec-{number}",
        created_at=at,
        expires_at=at,
        decided_at=None if state == "open" else at,
        updated_at=at,
    )


def continuation(number: int) -> Continuation:
    return Continuation(
        approval_id=f"apr_{number:06d}",
        request_id=f"req-{number}",
        arguments_sha256="0" * 64,
        decision_id=f"dec-{number}",
        decision="approved",
        state="owed" if number % 20 == 0 else "done",
        next_attempt_at=NOW,
        created_at=NOW,
        updated_at=NOW,
    )


@pytest.fixture
def many_rows(server_db: None) -> None:
    """Approvals in every state, most of them used, so that the plans are those of real tables."""
    Approval.objects.bulk_create(map(approval, range(ROWS)), batch_size=500)
    Continuation.objects.bulk_create(map(continuation, range(ROWS)), batch_size=500)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE bz_approvals, bz_approval_continuations")
        cursor.fetchall()


def first_select(query: Callable[[], object]) -> tuple[str, Any]:
    """The statement that picks the rows."""
    found: list[tuple[str, Any]] = []

    def keep(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("SELECT") and "bz_approval" in sql:
            found.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(keep):
        query()
    return found[0]


MIDDLE = (NOW - timedelta(seconds=ROWS // 2), "apr_0")
LIKE = Approval(id="apr_x", account_id="acct-1", tool="tool-1")
QUERIES: dict[str, tuple[Callable[[], object], str]] = {
    "continuation page": (lambda: continuations._owed(after="", limit=50), "bz_continuation_owed"),
    "later continuation page": (
        lambda: continuations._owed(after="apr_001500", limit=50),
        "bz_continuation_owed",
    ),
    "expiry page": (lambda: decisions._late(after=None, limit=50), "bz_approval_expiry"),
    "later expiry page": (lambda: decisions._late(after=MIDDLE, limit=50), "bz_approval_expiry"),
    "last one like it": (lambda: approvals.last_approved_like(approval=LIKE), "bz_approval_last"),
    "questions of a job": (lambda: approvals.approvals_of_job(job_id="job_7"), "bz_approval_job"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_page_is_served_by_one_index_without_sorting(many_rows: None, name: str) -> None:
    query, index = QUERIES[name]
    plan = plan_of(*first_select(query))
    assert plan["key"] == index, plan
    assert "filesort" not in (plan["Extra"] or ""), plan
    assert "temporary" not in (plan["Extra"] or ""), plan
    assert int(plan["rows"]) < ROWS / 2, plan
