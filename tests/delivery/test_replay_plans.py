"""The plans of dead-letter lists and of frozen sets: an index serves filter and order (L)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from kernel import clock
from kernel.api import lists
from kernel.models import DeadLetter, Operation, OperationItem
from kernel.operations import Filter, work
from kernel.operations.sets import LETTERS
from tests.usage.test_explain import plan_of

ROWS = 3000
NOW = clock.now()


def letter(number: int) -> DeadLetter:
    at = NOW - timedelta(seconds=ROWS - number)
    return DeadLetter(
        id=f"dlq_{number:06d}",
        account_id=f"acct-{number % 50}",
        notification_id=f"ntf_{number}",
        channel="webhook",
        recipient="https://hooks.example/7",
        content=b"{}",
        error_fingerprint=f"{number % 40:032x}",
        state="open" if number % 10 == 0 else "resolved",
        created_at=at,
        updated_at=at,
    )


def operation(number: int) -> Operation:
    return Operation(
        id=f"op_{number:06d}",
        kind="dead_letter_replay",
        filter_text="{}",
        state="running" if number % 100 == 0 else "done",
        created_by="user:x",
        created_at=NOW,
        updated_at=NOW,
    )


def item(number: int) -> OperationItem:
    return OperationItem(
        operation_id=f"op_{number % 10:06d}",
        sequence=number // 10,
        object_id=f"dlq_{number:06d}",
        updated_at=NOW,
    )


@pytest.fixture
def many_rows(server_db: None) -> None:
    DeadLetter.objects.bulk_create(map(letter, range(ROWS)), batch_size=500)
    Operation.objects.bulk_create(map(operation, range(ROWS)), batch_size=500)
    OperationItem.objects.bulk_create(map(item, range(ROWS)), batch_size=500)
    with connection.cursor() as cursor:
        for table in ("bz_delivery_dlq", "bz_operations", "bz_operation_items"):
            cursor.execute(f"ANALYZE TABLE {table}")
            cursor.fetchall()


AFTER = (NOW - timedelta(seconds=1500), "dlq_001500")
GROUP = Filter(fingerprint=f"{7:032x}")
QUERIES: dict[str, tuple[str, Callable[[], Any], str]] = {
    "list of an account": (
        "bz_delivery_dlq",
        lambda: lists.list_dead_letters(account_id="acct-1", state="", after="", limit=50),
        "bz_dlq_account",
    ),
    "set of a group": (
        "bz_delivery_dlq",
        lambda: LETTERS.after(GROUP.text(), AFTER, until=NOW, limit=1000),
        "bz_dlq_group_state",
    ),
    "set of a destination": (
        "bz_delivery_dlq",
        lambda: LETTERS.after(Filter(destination_id="dst").text(), None, until=NOW, limit=1000),
        "bz_dlq_destination_state",
    ),
    "running operations": ("bz_operations", lambda: work._waiting(only=""), "bz_operation_state"),
    "items of a page": (
        "bz_operation_items",
        lambda: work._items(operation_id="op_000003", first=100, limit=50),
        "bz_operation_item_sequence",
    ),
}


@pytest.mark.usefixtures("many_rows")
@pytest.mark.parametrize("name", QUERIES)
def test_an_index_serves_filter_and_order(name: str) -> None:
    table, query, index = QUERIES[name]
    selects: list[tuple[str, Any]] = []

    def keep(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        plain = sql.replace("`", "")
        if plain.startswith("SELECT") and f"FROM {table} " in plain and "ORDER BY" in plain:
            selects.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(keep):
        query()
    found = plan_of(*selects[0])
    assert found["key"] == index, found
    assert "filesort" not in (found["Extra"] or ""), found
