"""The plans of the hot queries: one index serves filter and order, nothing is sorted (B3, A9)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from kernel import clock
from kernel.ids import new_id
from kernel.models import Request
from kernel.usage import find_requests, recovery, settlement
from tests.support.product import make_account, make_service
from tests.usage.flow import Statements

ROWS = 3000


@pytest.fixture
def many_rows(server_db: None) -> None:
    """Requests in every state, most of them settled, so that the plans are those of real tables."""
    make_account()
    make_service()
    start = clock.now() - timedelta(days=1)
    kinds = [("complete", "settled")] * 16 + [("dispatched", "open"), ("complete", "pending")] * 2
    rows = []
    for number in range(ROWS):
        result, billing = kinds[number % len(kinds)]
        at = start + timedelta(seconds=number)
        rows.append(
            Request(
                id=new_id("req"),
                account_id=f"acct-{number % 5}",
                operation_id=f"op-{number}",
                service_id="gpt",
                service_version=1,
                path="/v1/chat/completions",
                content_sha256="0" * 64,
                multiplier_millionths=1_000_000,
                result_state=result,
                billing_state=billing,
                lease_expires_at=at,
                admitted_at=at,
                updated_at=at,
            )
        )
    Request.objects.bulk_create(rows, batch_size=500)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE bz_usage_requests")
        cursor.fetchall()


def plan_of(sql: str, params: Any) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}", params)
        names = [column[0] for column in cursor.description]
        (row,) = cursor.fetchall()
    return dict(zip(names, row, strict=True))


class Selects(Statements):
    """Keeps SELECTs on the requests with their parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, Any]] = []

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, ctx: Any) -> Any:
        if sql.startswith("SELECT") and "bz_usage_requests" in sql and "LIMIT" in sql:
            self.found.append((sql, params))
        return execute(sql, params, many, ctx)


def candidates(query: Callable[[], object]) -> tuple[str, Any]:
    """The statement that picks the rows."""
    selects = Selects()
    with connection.execute_wrapper(selects):
        query()
    return selects.found[0]


MIDDLE = (clock.now() - timedelta(hours=23, minutes=40), "req_0")
QUERIES = {
    "settlement page": (
        lambda: settlement.settlement_page(cursor=None, limit=50),
        "bz_usage_req_settlement",
    ),
    "settlement page after a cursor": (
        lambda: settlement.settlement_page(cursor=MIDDLE, limit=50),
        "bz_usage_req_settlement",
    ),
    "expired leases": (lambda: recovery.expiry_page(limit=50), "bz_usage_req_lease"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_page_is_served_by_one_index_without_sorting(many_rows: None, name: str) -> None:
    query, index = QUERIES[name]
    sql, params = candidates(query)
    plan = plan_of(sql, params)
    assert plan["key"] == index, plan
    assert "filesort" not in (plan["Extra"] or ""), plan
    assert "temporary" not in (plan["Extra"] or ""), plan
    assert int(plan["rows"]) < ROWS / 2, plan


def test_the_page_picks_ids_from_the_index_alone(many_rows: None) -> None:
    sql, params = candidates(lambda: settlement.settlement_page(cursor=None, limit=50))
    assert "Using index" in plan_of(sql, params)["Extra"]


def test_a_search_over_all_accounts_asks_the_unique_key_per_account(many_rows: None) -> None:
    for number in range(300):
        make_account(f"acct-{number}")
    sql, params = candidates(lambda: find_requests(operation_id="op-7"))
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}", params)
        names = [column[0] for column in cursor.description]
        accounts, requests = (dict(zip(names, row, strict=True)) for row in cursor.fetchall())
    assert (accounts["table"], requests["table"]) == ("known", "found")
    assert (requests["key"], requests["type"]) == ("bz_usage_request_operation", "eq_ref"), requests
    assert "Using index" in requests["Extra"]
    assert "filesort" not in accounts["Extra"] and "temporary" not in accounts["Extra"], accounts
