"""Operations are worked off once each, at their rate, whoever dies on the way (F9)."""

import json
import tracemalloc
from typing import Any
from unittest import mock

import pytest

from kernel import operations
from kernel.conf import override
from kernel.delivery import dead_letters, replay
from kernel.errors import Unavailable
from kernel.models import AuditRow, DeadLetter, DeadLetterGroup, Notification, Operation
from kernel.operations import Filter, work
from kernel.runtime.maintenance import DATABASE_FAILURES
from tests.delivery.letters import ANN, BEN, STORE, dead_child
from tests.operations.place import (
    PRINT,
    chunks_of,
    counts_of,
    items_of,
    let_lease_end,
    many,
    planned,
    queued,
    reread,
    running,
    work_off,
    worker,
)
from tests.support.commits import AWAY, LANDED, VANISHED, at_commit
from tests.support.killed import Killed, killed_at

pytestmark = pytest.mark.usefixtures("kernel_db")


def test_the_result_counts_are_those_of_the_preview() -> None:
    ids = many(20)
    row = running()
    dead_letters.archive(dead_letter_id=ids[3], actor=BEN, reason="gone")
    replay.replay(dead_letter_id=ids[5], actor=BEN, store=STORE)
    DeadLetter.objects.filter(id=ids[7]).delete()
    work_off(worker())
    assert counts_of(row) == (17, 2, 1)
    assert sum(counts_of(row)) == row.item_count
    found = reread(row)
    assert (found.state, found.owner, found.interruptions) == ("done", "", 0)
    assert found.finished_at is not None
    ends = items_of(row)
    assert ends.count(("done", "queued")) == 17
    assert {end for end in ends if end[0] == "skipped"} == {
        ("skipped", "archived"),
        ("skipped", "already_queued"),
    }
    assert next(end[1] for end in ends if end[0] == "failed").startswith("not_found")
    assert queued() == 18
    group = DeadLetterGroup.objects.get(fingerprint=PRINT)
    assert (group.total_count, group.open_count) == (20, 1)


def test_every_admission_names_who_planned_and_the_operation() -> None:
    (one,) = many(1)
    row = running()
    work_off(worker())
    act = AuditRow.objects.get(subject=f"dead_letter:{one}")
    assert (act.actor_kind, act.actor_id, act.request_id) == ("user", "ann", row.id)
    assert act.reason == "receiver is back"


def test_executors_children_are_replayed_too() -> None:
    letter = dead_child()
    row = running(fingerprint=letter.error_fingerprint)
    work_off(worker())
    assert counts_of(row) == (1, 0, 0)
    assert Notification.objects.get(id=letter.notification_id).state == "with_executor"


def test_pause_resume_and_cancel_hold_in_the_middle() -> None:
    many(100)
    row, one = running(), worker()
    one.page(limit=30)
    operations.pause(operation_id=row.id, actor=ANN)
    assert one.page(limit=30).scanned == 0 and counts_of(row) == (30, 0, 0)
    operations.resume(operation_id=row.id, actor=ANN)
    one.page(limit=30)
    operations.cancel(operation_id=row.id, actor=ANN, reason="enough")
    assert work_off(one) == 0
    assert counts_of(row) == (60, 0, 0) and queued() == 60
    assert reread(row).state == "cancelled"
    assert DeadLetter.objects.filter(state="open").count() == 40


@pytest.mark.parametrize("act", [operations.pause, operations.cancel])
def test_a_page_under_way_is_counted_when_its_operation_is_stopped(act: object) -> None:
    many(50)
    row, one = running(), worker()
    real = work.act_on

    def stopped(*args: object, **kwargs: object) -> object:
        ended = real(*args, **kwargs)  # type: ignore[arg-type]  # passed on
        act(operation_id=row.id, actor=ANN)  # type: ignore[operator]  # a verb
        return ended

    with mock.patch.object(work, "act_on", stopped):
        one.page(limit=20)
    assert counts_of(row) == (20, 0, 0) and queued() == 20
    assert (reread(row).state, reread(row).owner) in (("paused", ""), ("cancelled", ""))


# --- owners that are lost -------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["_admit_natives", "_resolve", "_record"])
@pytest.mark.parametrize("after", [False, True])
def test_a_killed_worker_is_followed_by_another_and_each_is_admitted_once(
    verb: str, after: bool
) -> None:
    many(60)
    row = running()
    with killed_at(verb, after=after), pytest.raises(Killed):
        work_off(worker("krn_dead"), limit=40)
    heir = worker("krn_heir")
    assert heir.page(limit=40).scanned == 0, "the lease still runs"
    let_lease_end(row)
    work_off(heir, limit=40)
    found = reread(row)
    assert (found.state, found.interruptions) == ("done", 1)
    assert counts_of(row) == (60, 0, 0) and queued() == 60
    assert AuditRow.objects.filter(action="dead_letter.replay").count() == 60


def test_a_worker_that_lost_its_lease_counts_nothing() -> None:
    many(40)
    row, slow = running(), worker("krn_slow")
    real = work.act_on

    def overtaken(*args: object, **kwargs: object) -> object:
        ended = real(*args, **kwargs)  # type: ignore[arg-type]  # passed on
        let_lease_end(row)
        with mock.patch.object(work, "act_on", real):
            worker("krn_fast").page(limit=40)
        return ended

    with mock.patch.object(work, "act_on", overtaken):
        slow.page(limit=40)
    assert counts_of(row) == (40, 0, 0) and queued() == 40
    assert (reread(row).state, reread(row).interruptions) == ("done", 1)


def test_an_orderly_end_is_no_interruption() -> None:
    many(40)
    row, one = running(), worker()
    one.page(limit=10)
    assert reread(row).owner == "krn_a"
    one.release()
    assert reread(row).owner == ""
    work_off(worker("krn_b"))
    assert (reread(row).state, reread(row).interruptions) == ("done", 0)


def test_while_one_process_has_it_no_other_takes_it() -> None:
    many(40)
    row = running()
    worker("krn_a").page(limit=10)
    assert worker("krn_b").page(limit=10).scanned == 0
    assert counts_of(row) == (10, 0, 0)


@pytest.mark.parametrize("what", [AWAY, LANDED, VANISHED])
@pytest.mark.parametrize("verb", ["_claim", "_admit_natives", "_resolve", "_record"])
def test_a_database_in_trouble_fails_no_item(verb: str, what: str) -> None:
    many(30)
    row, one = running(), worker()
    with at_commit(verb, what, times=2) as fault, pytest.raises(DATABASE_FAILURES):
        work_off(one)
    assert fault.fired >= 1
    work_off(one)
    assert counts_of(row) == (30, 0, 0) and queued() == 30
    assert reread(row).interruptions == 0


def test_one_item_with_a_defect_keeps_no_other_waiting() -> None:
    ids = many(20)
    row = running()
    real = replay.replay_page

    def broken(*, dead_letter_ids: list[str], **more: object) -> object:
        if ids[4] in dead_letter_ids:
            raise ValueError("a defect")
        return real(dead_letter_ids=dead_letter_ids, **more)  # type: ignore[arg-type]  # passed on

    with mock.patch.object(replay, "replay_page", broken):
        work_off(worker())
    assert counts_of(row) == (19, 0, 1) and reread(row).state == "done"
    assert ("failed", "defect: ValueError") in items_of(row)


def test_a_lost_capability_fails_its_items_and_says_why() -> None:
    letter = dead_child()
    row = running(fingerprint=letter.error_fingerprint)
    bare = type(STORE)()
    bare.capabilities = frozenset()
    work_off(operations.Operations(owner="krn_a", store=bare))
    ((state, text),) = items_of(row)
    assert state == "failed" and "ensure_executor_replay" in text
    assert Unavailable.retryable


# --- rate, size, archive --------------------------------------------------------------------------


def test_no_more_than_the_rate_is_taken_in_a_second() -> None:
    many(60)
    row, one = running(rate=10, fingerprint=PRINT), worker()
    seconds = [100.0]
    with mock.patch("kernel.operations.work.clock.monotonic", side_effect=lambda: seconds[0]):
        work_off(one)
        assert counts_of(row)[0] == 10
        seconds[0] = 100.5
        work_off(one)
        assert counts_of(row)[0] == 15
        seconds[0] = 200.0
        work_off(one)
        assert counts_of(row)[0] == 35, "what a long pause did not use is not all made up for"


def test_two_operations_take_turns() -> None:
    many(60)
    many(60, fingerprint="e" * 32)
    first, second = running(fingerprint=PRINT), running(fingerprint="e" * 32)
    one = worker()
    for _ in range(4):
        one.page(limit=10)
    assert (counts_of(first), counts_of(second)) == ((20, 0, 0), (20, 0, 0))


def test_who_works_on_one_operation_touches_no_other() -> None:
    many(5)
    many(5, fingerprint="e" * 32)
    first, second = running(fingerprint=PRINT), running(fingerprint="e" * 32)
    one = operations.Operations(owner="cmd_a", store=STORE, only=second.id)
    work_off(one)
    assert (counts_of(first), counts_of(second)) == ((0, 0, 0), (5, 0, 0))
    assert reread(first).owner == ""


def test_what_another_process_has_finished_is_forgotten(
    django_assert_max_num_queries: Any,
) -> None:
    many(20)
    with chunks_of(2):
        row = planned()
        one = worker()
        one.page(limit=10)
        assert list(one.tallies) == [row.id]
        work_off(one)
    operations.apply(operation_id=row.id, actor=ANN, seen_digest=reread(row).digest)
    one.page(limit=10)
    assert list(one.paces) == [row.id]
    let_lease_end(row)
    work_off(worker("krn_b"))
    with django_assert_max_num_queries(2):
        one.page(limit=10)
    assert (one.paces, one.tallies) == ({}, {})


def test_a_look_asks_once_however_many_wait(django_assert_max_num_queries: Any) -> None:
    many(60)
    for _ in range(3):
        running(rate=1, fingerprint=PRINT)
    one = worker()
    with mock.patch("kernel.operations.work.clock.monotonic", return_value=100.0):
        work_off(one)
        with django_assert_max_num_queries(2):
            assert not one.page(limit=10).has_more


def test_a_bulk_archive_takes_its_set_out_of_the_open_ones() -> None:
    many(30)
    row = operations.plan_archive(
        filter=Filter(fingerprint=PRINT), actor=ANN, reason="the receiver is gone"
    )
    operations.apply(operation_id=row.id, actor=ANN, seen_digest=row.digest)
    with killed_at("_record", after=False), pytest.raises(Killed):
        work_off(worker("krn_dead"), limit=10)
    let_lease_end(row)
    work_off(worker("krn_heir"), limit=10)
    assert counts_of(row) == (30, 0, 0) and queued() == 0
    assert DeadLetter.objects.filter(state="archived").count() == 30
    assert DeadLetterGroup.objects.get(fingerprint=PRINT).open_count == 0


def test_four_hundred_are_planned_and_replayed_in_bounded_memory() -> None:
    many(400, content=b"x" * 32_768)
    tracemalloc.start()
    try:
        with chunks_of(100):
            row = planned()
            work_off(worker())
        row = reread(row)
        operations.apply(operation_id=row.id, actor=ANN, seen_digest=row.digest)
        work_off(worker(), limit=40)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counts_of(row) == (400, 0, 0) and queued() == 400
    assert json.loads(row.split_text) == {"dst_1": 400}
    assert peak < 6 * 1024 * 1024, peak  # all contents are 13 MB


def test_a_large_content_is_admitted_in_statements_that_a_server_takes() -> None:
    with override(notification_bytes_max=4 * 1024 * 1024):
        many(12, content=b"\xff" * (1024 * 1024))
        row = running()
        work_off(worker())
    assert counts_of(row) == (12, 0, 0)
    sizes = {len(bytes(one)) for one in Notification.objects.values_list("content", flat=True)}
    assert sizes == {1024 * 1024}
    assert Operation.objects.get(id=row.id).state == "done"
