"""A plan is a frozen set: counted, digested, split; nothing is done yet (F9)."""

import hashlib
import json
from datetime import timedelta
from functools import partial

import pytest

from kernel import clock, operations, schema
from kernel.conf import override
from kernel.errors import Conflict, InvalidInput, KernelError, Unavailable
from kernel.models import DeadLetter, Operation, OperationItem
from kernel.operations import Filter
from tests.approvals.place import without
from tests.delivery.letters import ANN
from tests.operations.place import (
    PRINT,
    acts_of,
    chunks_of,
    many,
    planned,
    queued,
    reread,
    running,
    work_off,
    worker,
)
from tests.support.commits import AWAY, at_commit

pytestmark = pytest.mark.usefixtures("kernel_db")


def test_a_plan_names_its_set_and_does_nothing() -> None:
    ids = many(5, destination_id="dst_1") + many(3, destination_id="dst_2")
    many(2, fingerprint="e" * 32)
    row = planned(fingerprint=PRINT)
    assert (row.kind, row.state, row.item_count) == ("dead_letter_replay", "planned", 8)
    assert json.loads(row.split_text) == {"dst_1": 5, "dst_2": 3}
    assert json.loads(row.filter_text) == {"fingerprint": PRINT}
    items = OperationItem.objects.filter(operation_id=row.id).order_by("sequence")
    frozen = list(items.values_list("object_id", flat=True))
    assert sorted(frozen) == sorted(ids)
    assert row.digest == hashlib.sha256("".join(f"{one}\n" for one in frozen).encode()).hexdigest()
    assert list(items.values_list("sequence", flat=True)) == list(range(1, 9))
    assert queued() == 0 and acts_of(row) == ["plan"]
    assert worker().page(limit=50).scanned == 0


def test_an_empty_filter_is_refused() -> None:
    many(2)
    for plan in (operations.plan_replay, operations.plan_archive):
        with pytest.raises(InvalidInput) as refusal:
            plan(filter=Filter(), actor=ANN, reason="all of them")
        assert refusal.value.error_code == "empty_filter"
    with pytest.raises(InvalidInput):
        operations.preview(filter=Filter())
    assert Operation.objects.count() == OperationItem.objects.count() == 0


def test_a_filter_that_matches_nothing_makes_no_plan() -> None:
    many(2)
    with pytest.raises(Conflict) as refusal:
        planned(destination_id="dst_none")
    assert refusal.value.error_code == "nothing_matches"
    assert Operation.objects.count() == 0


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"account_id": "globex"}, 4),
        ({"channel": "email"}, 3),
        ({"destination_id": "dst_1", "account_id": "acme"}, 5),
    ],
)
def test_what_is_asked_is_what_is_in_the_set(asked: dict[str, str], count: int) -> None:
    many(2)
    many(3, channel="email")
    many(4, account_id="globex")
    assert planned(**asked).item_count == count
    assert operations.preview(filter=Filter(**asked)).count == count


def test_times_are_bounds_of_the_set() -> None:
    old = many(3)
    DeadLetter.objects.filter(id__in=old).update(created_at=clock.db_now() - timedelta(hours=2))
    many(2)
    hour_ago = clock.db_now() - timedelta(hours=1)
    assert planned(before=hour_ago).item_count == 3
    assert planned(since=hour_ago).item_count == 2
    with pytest.raises(InvalidInput):
        planned(before=hour_ago.replace(tzinfo=None))


def test_newcomers_and_what_was_dealt_with_are_not_in_the_set() -> None:
    many(250)
    row = running()
    one = worker()
    assert one.page(limit=100).settled == 100
    many(30)
    work_off(one)
    assert queued() == 250
    assert DeadLetter.objects.filter(state="open").count() == 30
    assert planned().item_count == 30
    assert Operation.objects.get(id=row.id).state == "done"


def test_sixty_of_one_instant_are_all_in_the_set_once() -> None:
    at = clock.db_now()
    ids = many(60)
    DeadLetter.objects.filter(id__in=ids).update(created_at=at)
    with chunks_of(25):
        row = planned()
        work_off(worker())
    assert (reread(row).state, reread(row).item_count) == ("planned", 60)
    items = OperationItem.objects.filter(operation_id=row.id).values_list("object_id", flat=True)
    assert sorted(items) == sorted(ids)


def test_a_set_over_the_limit_is_refused_and_leaves_nothing() -> None:
    many(30)
    with override(operation_items_count_max=20), pytest.raises(InvalidInput) as refusal:
        planned()
    assert refusal.value.error_code == "too_many"
    assert Operation.objects.count() == OperationItem.objects.count() == 0


def test_a_plan_that_broke_off_is_not_there() -> None:
    many(3)
    with at_commit("_insert", AWAY, times=2), pytest.raises(Exception, match="gone away"):
        planned()
    assert Operation.objects.count() == 0
    assert planned().item_count == 3


@pytest.mark.parametrize("fields", [{"reason": " "}, {"rate_per_second": 0}])
def test_a_reason_and_a_rate_are_needed(fields: dict[str, object]) -> None:
    many(1)
    values = {"filter": Filter(fingerprint=PRINT), "actor": ANN, "reason": "x", **fields}
    with pytest.raises(InvalidInput):
        operations.plan_replay(**values)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("missing", [schema.REPLAY, schema.DELIVERY])
def test_without_its_migrations_there_is_no_plan(missing: str) -> None:
    many(1)
    with without(missing), pytest.raises(Unavailable) as refusal:
        planned()
    assert refusal.value.details["migration"] == missing


def test_only_the_plan_that_was_seen_is_applied() -> None:
    many(3)
    row = planned()
    with pytest.raises(Conflict) as refusal:
        operations.apply(operation_id=row.id, actor=ANN, seen_digest="0" * 64)
    assert (refusal.value.error_code, refusal.value.details["digest"]) == ("changed", row.digest)
    assert operations.apply(operation_id=row.id, actor=ANN, seen_digest=row.digest).started_at


def test_acts_move_an_operation_only_from_where_they_may() -> None:
    many(3)
    row = planned()
    acts = {
        "apply": partial(operations.apply, seen_digest=row.digest),
        "pause": operations.pause,
        "resume": operations.resume,
        "cancel": operations.cancel,
    }

    def refused(*names: str) -> None:
        for name in names:
            with pytest.raises(KernelError) as refusal:
                acts[name](operation_id=row.id, actor=ANN)
            assert refusal.value.error_code == "operation_state"

    refused("pause", "resume")
    acts["apply"](operation_id=row.id, actor=ANN)
    refused("apply", "resume")
    acts["pause"](operation_id=row.id, actor=ANN)
    refused("pause", "apply")
    acts["cancel"](operation_id=row.id, actor=ANN)
    refused("apply", "pause", "resume", "cancel")
    assert acts_of(row) == ["plan", "apply", "pause", "cancel"]
