"""A large set is frozen in the background: bounded, through kills, once each, then told (F9)."""

import hashlib
import json
from collections.abc import Iterator
from unittest import mock

import pytest

from kernel import operations
from kernel.conf import override
from kernel.delivery import dead_letters
from kernel.errors import Conflict
from kernel.models import AuditRow, DeadLetter, Operation, OperationItem
from kernel.runtime.maintenance import DATABASE_FAILURES
from tests.delivery.letters import ANN, BEN
from tests.operations.place import (
    acts_of,
    chunks_of,
    counts_of,
    let_lease_end,
    many,
    planned,
    queued,
    reread,
    work_off,
    worker,
)
from tests.support.commits import AWAY, LANDED, VANISHED, at_commit
from tests.support.killed import Killed, killed_at

pytestmark = pytest.mark.usefixtures("kernel_db")


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    with chunks_of(10), mock.patch("kernel.operations.freezing.CHUNKS_MAX", 2):
        yield


def frozen(row: Operation) -> list[str]:
    items = OperationItem.objects.filter(operation_id=row.id).order_by("sequence")
    return list(items.values_list("object_id", flat=True))


def is_whole(row: Operation, ids: list[str]) -> None:
    """Every one of them once, numbered, counted, digested, split."""
    found, items = reread(row), frozen(row)
    assert (found.state, found.owner, found.item_count) == ("planned", "", len(ids))
    assert sorted(items) == sorted(ids) and found.ceiling_id == items[-1]
    assert found.digest == hashlib.sha256("".join(f"{one}\n" for one in items).encode()).hexdigest()
    assert sum(json.loads(found.split_text).values()) == len(ids)
    assert queued() == 0


def test_a_large_set_is_not_frozen_by_who_asks_for_it() -> None:
    ids = many(40, destination_id="dst_1") + many(25, destination_id="dst_2")
    row = planned()
    assert (row.state, row.item_count, row.digest, frozen(row)) == ("planning", 0, "", [])
    with pytest.raises(Conflict) as refusal:
        operations.apply(operation_id=row.id, actor=ANN, seen_digest="")
    assert refusal.value.details["state"] == "planning"
    one = worker()
    assert one.page(limit=1).has_more and reread(row).item_count == 20, "progress is in the row"
    many(30)
    work_off(one)
    is_whole(row, ids)
    assert json.loads(reread(row).split_text) == {"dst_1": 40, "dst_2": 25}
    assert acts_of(row) == ["plan", "freeze"]
    act = AuditRow.objects.get(subject=f"operation:{row.id}", action="operation.freeze")
    assert (act.actor_kind, act.actor_id, act.request_id) == ("user", "ann", row.id)
    operations.apply(operation_id=row.id, actor=ANN, seen_digest=reread(row).digest)
    work_off(one)
    assert counts_of(row) == (65, 0, 0) and queued() == 65


@pytest.mark.parametrize("verb", ["_freeze", "_seal"])
@pytest.mark.parametrize("after", [False, True])
def test_who_freezes_may_be_killed_anywhere(verb: str, after: bool) -> None:
    ids = many(35)
    row = planned()
    dead = worker("krn_dead")
    if verb == "_freeze":
        dead.page(limit=1)
    with killed_at(verb, after=after), pytest.raises(Killed):
        work_off(dead)
    heir = worker("krn_heir")
    if reread(row).state == "planning":
        assert not heir.page(limit=1).has_more, "the lease still runs"
        let_lease_end(row)
    work_off(heir)
    is_whole(row, ids)
    assert reread(row).interruptions == (0 if (verb, after) == ("_seal", True) else 1)


@pytest.mark.parametrize("what", [AWAY, LANDED, VANISHED])
@pytest.mark.parametrize("verb", ["_freeze", "_seal"])
def test_a_database_in_trouble_leaves_the_set_whole(verb: str, what: str) -> None:
    ids = many(35)
    row, one = planned(), worker()
    with at_commit(verb, what, times=2) as fault, pytest.raises(DATABASE_FAILURES):
        work_off(one)
    assert fault.fired >= 1
    work_off(one)
    is_whole(row, ids)


def test_what_is_deleted_or_dealt_with_meanwhile_hides_nothing() -> None:
    ids = many(65)
    row, one = planned(), worker()
    one.page(limit=1)
    done = frozen(row)
    DeadLetter.objects.filter(id__in=done[5:]).delete()
    rest = [each for each in ids if each not in done]
    dead_letters.archive(dead_letter_id=rest[0], actor=BEN, reason="gone")
    work_off(one)
    is_whole(row, done + rest[1:])


def test_an_orderly_end_gives_the_set_to_another() -> None:
    ids = many(35)
    row, one = planned(), worker()
    one.page(limit=1)
    one.release()
    work_off(worker("krn_b"))
    is_whole(row, ids)
    assert reread(row).interruptions == 0


def test_a_plan_that_is_discarded_is_frozen_no_further() -> None:
    many(65)
    row, one = planned(), worker()
    one.page(limit=1)
    operations.cancel(operation_id=row.id, actor=ANN, reason="too many")
    assert work_off(one) == 0
    assert (reread(row).state, reread(row).item_count, len(frozen(row))) == ("cancelled", 20, 20)


def test_a_set_that_grows_over_the_limit_or_melts_away_is_refused_and_says_why() -> None:
    many(35)
    with override(operation_items_count_max=30):
        large = planned()
        work_off(worker())
    assert (reread(large).state, queued()) == ("cancelled", 0)
    assert "30 match" in reread(large).error_text
    gone = planned()
    DeadLetter.objects.all().delete()
    work_off(worker())
    assert (reread(gone).state, reread(gone).item_count) == ("cancelled", 0)
    assert "any more" in reread(gone).error_text
