"""Hot statements as text: what they read and write is what the ORM would (A1)."""

from datetime import timedelta

import pytest

from kernel import clock, sql
from kernel.errors import InvalidId, KernelError, RetryTransaction
from kernel.models import Pause, Tool
from kernel.transactions import transaction

pytestmark = pytest.mark.usefixtures("kernel_db")


@transaction
def insert(*, rows: list[Pause]) -> None:
    sql.insert_new_rows_in_tx(rows)


@transaction
def rename(*, scope: str, to: str) -> int:
    return sql.update_where_in_tx(Pause, {"scope": to}, "scope = %s", [scope])


def pause(scope: str, *, hours: int = 0) -> Pause:
    at = clock.db_now() - timedelta(hours=hours)
    return Pause(scope=scope, reason="maintenance 100 %", paused_by="user:ann", paused_at=at)


def test_a_row_comes_back_as_the_orm_reads_it() -> None:
    new = [pause("global"), pause("route:a", hours=2), pause("route:A", hours=1)]
    insert(rows=new)
    found = sql.rows(Pause, {}, more="ORDER BY paused_at")
    assert [vars(row) | {"_state": 0} for row in found] == [
        vars(row) | {"_state": 0} for row in Pause.objects.order_by("paused_at")
    ]
    assert [row.scope for row in found] == ["route:a", "route:A", "global"]
    assert sql.values(Pause, ("scope",), {"scope": "route:a"}) in ([("route:a",)], (("route:a",),))
    assert len(sql.rows(Pause, {"scope": ["route:a", "route:A", "route:b"]})) == 2
    assert sql.rows(Pause, {"scope": []}) == []


def test_booleans_and_missing_times_are_those_of_the_model() -> None:
    now = clock.db_now()
    Tool.objects.create(
        id="look",
        url="http://127.0.0.1",
        parameters_text="{}",
        policy_text="{}",
        side_effect=False,
        created_at=now,
        updated_at=now,
    )
    (tool,) = sql.rows(Tool, {"id": "look", "active": True})
    assert (tool.side_effect, tool.active, tool.created_at) == (False, True, now)


def test_some_columns_come_with_the_key_and_the_rest_when_asked_for() -> None:
    insert(rows=[pause("global")])
    (row,) = sql.rows(Pause, {"scope": "global"}, columns=("paused_by", "reason"))
    assert (row.reason, row.paused_by, row.scope) == ("maintenance 100 %", "user:ann", "global")
    assert row.paused_at == Pause.objects.get().paused_at


def test_a_time_finds_its_row_and_none_is_no_value() -> None:
    insert(rows=[pause("global"), pause("route:a", hours=2)])
    at = Pause.objects.get(scope="route:a").paused_at
    assert [row.scope for row in sql.rows(Pause, {"paused_at": at})] == ["route:a"]
    with pytest.raises(ValueError, match="IS NULL"):
        sql.rows(Pause, {"paused_at": None})


def test_a_lock_needs_a_transaction() -> None:
    with pytest.raises(KernelError, match="transaction"):
        sql.rows(Pause, {"scope": "global"}, lock=sql.WAIT)


def test_what_is_no_id_reaches_no_statement() -> None:
    insert(rows=[pause("global")])
    with pytest.raises(InvalidId):
        sql.rows(Pause, {"scope": "é"})
    with pytest.raises(InvalidId):
        insert(rows=[pause("route:b"), pause("not an id")])
    with pytest.raises(InvalidId):
        rename(scope="global", to="global ")
    assert [row.scope for row in Pause.objects.all()] == ["global"]


def test_a_key_that_was_taken_runs_the_block_again_until_it_gives_up() -> None:
    insert(rows=[pause("global")])
    with pytest.raises(RetryTransaction):
        insert(rows=[pause("route:a"), pause("global")])
    assert Pause.objects.count() == 1
    assert (rename(scope="global", to="route:a"), rename(scope="global", to="x")) == (1, 0)
