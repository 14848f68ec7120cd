"""Continuations that meet faults: paged, backed off, retried, never twice, never blocking."""

import ast
from datetime import timedelta

import pytest
from django.db import OperationalError

from kernel import approvals, clock
from kernel.approvals import continuations
from kernel.audit import Actor
from kernel.conf import override
from kernel.errors import Conflict, NotFound, Unavailable
from kernel.models import Approval, Continuation, Job
from kernel.state import DatabaseStore
from tests.approvals.place import (
    ANN,
    BEN,
    STORE,
    Faulty,
    acts_of,
    asked,
    carried,
    carry,
    consume,
    decided,
    everything,
    job_of,
    make_due,
    markers_of,
    one,
    order,
    owed_of,
    sweep,
    voided,
    without,
)
from tests.support.commits import AWAY, LANDED, VANISHED, at_commit
from tests.tidy.tree import PRODUCT, at, calls, files, functions, text_of

pytestmark = pytest.mark.usefixtures("kernel_db")

COORDINATES = {"approval_id", "job_id", "request_id", "arguments_sha256", "decision_id", "decision"}


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["approved", "denied"])
@pytest.mark.parametrize("after", [False, True])
def test_503_then_the_identical_retry_converges_to_200(word: str, after: bool) -> None:
    """`after`: the store did it and the acknowledgement was lost."""
    row = one()
    store = Faulty(after=after, times=1)
    asks = order(row, word)
    answer = approvals.decide_and_carry(order=asks, store=store)
    assert (answer.http_status, answer.continuation_pending) == (503, True)
    assert answer.approval.decision == word and "Boom: out of order" in answer.error
    owed = owed_of(row)
    assert (owed.state, owed.attempts, owed.error_text) == ("owed", 1, "Boom: out of order")
    again = approvals.decide_and_carry(order=asks, store=store)
    assert (again.http_status, again.continuation_pending, again.replayed) == (200, False, True)
    assert job_of(row).state == ("queued" if word == "approved" else "refused")
    assert acts_of(row) == ["opened", "decided", "carried_through"]
    assert (owed_of(row).state, owed_of(row).error_text) == ("done", "")


def test_a_failure_waits_longer_each_time_up_to_a_limit() -> None:
    row = one()
    decided(row)
    waits = []
    with override(continuation_retry_first_seconds=2, continuation_retry_max_seconds=10):
        for attempt in range(1, 6):
            assert carry(row, Faulty()).attempts == attempt
            owed = owed_of(row)
            waits.append(round((owed.next_attempt_at - owed.updated_at).total_seconds()))
    assert waits == [2, 4, 8, 10, 10]
    Continuation.objects.filter(approval_id=row.id).update(attempts=5000)
    assert carry(row, Faulty()).attempts == 5001


def test_one_that_always_fails_never_keeps_the_others_waiting() -> None:
    rows = [decided(one(f"req-{n}")) for n in range(100)]
    bad = rows[3]
    reports = sweep(limit=7, store=Faulty(job_ids=(bad.job_id,)))
    assert sum(report.settled for report in reports) == 99
    assert sum(report.failed for report in reports) == 1
    owed = Continuation.objects.get(state="owed")
    assert (owed.approval_id, owed.attempts) == (bad.id, 1)
    assert owed.next_attempt_at > owed.updated_at and "Boom" in owed.error_text
    approvals.retry_now(approval_id=bad.id, actor=BEN)
    assert sweep()[0].settled == 1
    assert job_of(bad).state == "queued"


def test_an_unknown_approval_or_job_does_not_stop_the_page() -> None:
    good = [decided(one(f"req-{n}")) for n in range(3)]
    Approval.objects.filter(id=good[0].id).delete()
    Job.objects.filter(id=good[1].job_id).delete()
    (report,) = sweep()
    assert (report.scanned, report.settled, report.failed) == (3, 1, 2)
    errors = list(
        Continuation.objects.filter(state="owed")
        .order_by("approval_id")
        .values_list("error_text", flat=True)
    )
    assert "does not fit its approval" in errors[0] and "no job" in errors[1]


def test_the_page_walks_by_approval_id_and_wraps() -> None:
    rows = sorted((decided(one(f"req-{n}")) for n in range(5)), key=lambda row: row.id)
    page = approvals.continuation_page(store=STORE)
    first = page(limit=2)
    assert (first.scanned, first.settled, first.cursor) == (2, 2, rows[1].id)
    second = page(cursor=first.cursor, limit=2)
    third = page(cursor=second.cursor, limit=2)
    assert (second.settled, third.settled, third.cursor) == (2, 1, None)


def test_a_row_that_another_process_took_is_left_to_it() -> None:
    """The claim holds only for the version that was read."""
    row = decided(one())
    stale = owed_of(row)
    assert continuations._claim(approval_id=row.id, seen_at=stale.next_attempt_at)
    assert not continuations._claim(approval_id=row.id, seen_at=stale.next_attempt_at)
    before = everything()
    state = continuations._turn(stale, STORE, now=clock.db_now())
    assert state == "" and everything() == before
    assert owed_of(row).next_attempt_at > clock.db_now() + timedelta(seconds=3)


def test_a_process_that_died_after_its_claim_leaves_the_row_to_a_later_pass() -> None:
    row = decided(one())
    with override(continuation_interval_seconds=5):
        continuations._claim(approval_id=row.id, seen_at=owed_of(row).next_attempt_at)
    make_due(row)
    assert sweep()[0].settled == 1


@pytest.mark.parametrize("verb", ["_observe", "_admit_once", "_finish"])
@pytest.mark.parametrize("what", [LANDED, VANISHED])
def test_a_lost_acknowledgement_of_any_step_is_carried_through_once(verb: str, what: str) -> None:
    row = one()
    with at_commit(verb, what) as fault:
        answer = carried(row)
    assert fault.fired == 1
    landed_at_the_end = (verb, what) == ("_finish", LANDED)
    assert answer.http_status == (200 if landed_at_the_end else 503)
    assert carried(row).http_status == 200
    assert job_of(row).state == "queued" and len(markers_of(row)) == 1
    assert acts_of(row) == ["opened", "decided", "carried_through"]
    assert owed_of(row).state == "done"


def test_a_failure_that_cannot_be_recorded_leaves_the_row_due() -> None:
    row = one()
    decided(row)
    with at_commit("_record_failure", AWAY, times=2):
        found = carry(row, Faulty())
    assert (found.state, found.error) == ("owed", "Boom: out of order")
    assert owed_of(row).attempts == 0
    assert sweep()[0].settled == 1


def test_a_database_that_restarts_in_mid_pass_loses_no_row() -> None:
    rows = [decided(one(f"req-{n}")) for n in range(6)]
    page = approvals.continuation_page(store=STORE)
    first = page(limit=2)
    with at_commit("_claim", AWAY, times=2), pytest.raises(OperationalError):
        page(cursor=first.cursor, limit=2)
    sweep()
    assert {owed_of(row).state for row in rows} == {"done"}
    assert {job_of(row).state for row in rows} == {"queued"}


@pytest.mark.parametrize("verb", ["_observe", "_admit_once", "_finish"])
def test_a_database_that_goes_away_behind_the_decision_is_answered_as_recorded(verb: str) -> None:
    row = one()
    with at_commit(verb, AWAY, times=2):
        answer = carried(row)
    assert (answer.http_status, answer.continuation_pending) == (503, True)
    assert answer.approval.decision == "approved"
    assert carried(row).http_status == 200


def test_a_store_that_lost_its_capability_keeps_the_decision_owed() -> None:
    row = decided(one())

    class Plain(DatabaseStore):
        capabilities = frozenset()

    found = carry(row, Plain())
    assert found.state == "owed" and "requeue_approved_job_once" in found.error
    assert job_of(row).state == "waiting"


def test_without_migration_0066_carrying_is_unavailable() -> None:
    row = decided(one())
    before = everything()
    with without("0066_approval_continuations"), pytest.raises(Unavailable):
        carry(row)
    assert everything() == before


# --- an operator's retry --------------------------------------------------------------------------


def test_an_operator_retries_now_and_the_audit_says_so() -> None:
    row = decided(one())
    carry(row, Faulty())
    assert sweep()[0].deferred == 1
    found = approvals.retry_now(approval_id=row.id, actor=BEN)
    assert found.next_attempt_at <= clock.db_now() and found.attempts == 1
    assert acts_of(row)[-1] == "retry"
    assert sweep()[0].settled == 1
    with pytest.raises(Conflict) as caught:
        approvals.retry_now(approval_id=row.id, actor=BEN)
    assert caught.value.error_code == "carried_through"
    with pytest.raises(NotFound):
        approvals.retry_now(approval_id="apr_none", actor=BEN)


# --- coordinates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("column", sorted(COORDINATES - {"approval_id"}))
def test_coordinates_that_somebody_changed_in_the_table_admit_nothing(column: str) -> None:
    row = decided(one())
    value = "denied" if column == "decision" else "changed"
    Continuation.objects.filter(approval_id=row.id).update(**{column: value})
    found = carry(row)
    assert found.state == "owed" and f"does not fit its approval: {column}" in found.error
    assert job_of(row).state == "waiting" and "carried_through" not in acts_of(row)


def test_no_verb_updates_the_coordinates_of_a_continuation() -> None:
    """They are written by the insert of the decision, and by nothing else in the product."""
    updates, wrong = 0, []
    for path in files(*PRODUCT):
        if "Continuation" not in text_of(path):
            continue
        for function in functions(path):
            for name, call in calls(function):
                if name in ("update", "bulk_update", "update_or_create", "get_or_create", "delete"):
                    chain = ast.unparse(call)
                    chain += (
                        ast.unparse(function) if "Continuation" in ast.unparse(function) else ""
                    )
                    if "Continuation.objects" not in chain:
                        continue
                    updates += 1
                    keywords = {keyword.arg for keyword in call.keywords}
                    if name != "update" or keywords & (COORDINATES | {None}):
                        wrong.append(at(path, call))
                if name == "update_where_in_tx" and ast.unparse(call.args[0]) == "Continuation":
                    updates += 1
                    written = call.args[1]
                    assert isinstance(written, ast.Dict), at(path, call)
                    if {ast.literal_eval(key) for key in written.keys if key} & COORDINATES:
                        wrong.append(at(path, call))
    assert updates >= 5, "the rule looks at the verbs of continuations"
    assert wrong == []


def test_the_whole_life_of_a_decision_leaves_its_coordinates_alone() -> None:
    row = one()
    decided(row)
    before = Continuation.objects.filter(approval_id=row.id).values(*sorted(COORDINATES)).get()
    carry(row, Faulty())
    approvals.retry_now(approval_id=row.id, actor=BEN)
    carry(row)
    carried(row)
    consume(row)
    voided(row)
    after = Continuation.objects.filter(approval_id=row.id).values(*sorted(COORDINATES)).get()
    assert after == before


def test_the_decider_of_a_form_sent_twice_is_not_stopped_by_its_act_key() -> None:
    """The decision id makes the act happen once; the same form may also decide many rows."""
    rows = asked(count=2)
    actor = Actor(ANN.kind, ANN.id, act_key="form-1")
    for row in (*rows, *rows):
        assert carried(row, actor=actor).http_status == 200
