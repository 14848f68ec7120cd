"""Continuations: a recorded decision is carried through once, whatever fails in between."""

import json
from functools import partial
from typing import Any
from unittest import mock

import pytest

from kernel import approvals, clock
from kernel.approvals import continuations
from kernel.errors import Conflict, NotFound
from kernel.models import Approval, AuditRow, Job, ToolCall
from kernel.state import Admission
from kernel.states import JobState, Waiting
from tests.approvals.place import (
    STORE,
    Boom,
    acts_of,
    asked,
    carried,
    carry,
    consume,
    decided,
    everything,
    in_tx,
    job_of,
    let_expire,
    make_due,
    markers_of,
    one,
    owed_of,
    park,
    question,
    reread,
    sweep,
    voided,
)

pytestmark = pytest.mark.usefixtures("kernel_db")


def claim() -> Any:
    (job,) = STORE.claim(owner="wrk_b", target="agent", limit=1)
    return job


# --- the way it goes ------------------------------------------------------------------------------


def test_an_approved_job_is_queued_and_the_decision_is_done() -> None:
    row = one()
    answer = carried(row)
    assert (answer.http_status, answer.continuation_pending, answer.replayed) == (200, False, False)
    assert answer.approval.state == "approved"
    assert acts_of(row) == ["opened", "decided", "carried_through"]
    marker = f"{row.id}.dec-{row.id}"
    assert markers_of(row) == [marker]
    seen = AuditRow.objects.get(action="approval.carried_through")
    assert json.loads(seen.after_text) == {"detail": {"continuation_id": marker}}
    assert (job_of(row).state, owed_of(row).state) == ("queued", "done")
    assert owed_of(row).finished_at is not None


def test_a_denied_job_is_refused_with_the_reason() -> None:
    row = one()
    answer = carried(row, "denied", reason="wrong order")
    assert (answer.http_status, answer.continuation_pending) == (200, False)
    job = job_of(row)
    assert (job.state, job.error_code) == ("refused", "approval_denied")
    assert "ann" in job.error_text and "wrong order" in job.error_text
    assert markers_of(row) == [] and owed_of(row).state == "done"
    assert acts_of(row) == ["opened", "decided", "carried_through"]


def test_a_repeated_decision_carries_nothing_twice() -> None:
    row = one()
    carried(row)
    job = claim()
    STORE.finish(fence=job.fence, state=JobState.DONE, result_text="ok")
    before = everything()
    for _ in range(20):
        answer = carried(row)
        assert (answer.http_status, answer.continuation_pending, answer.replayed) == (200, 0, 1)
    assert everything() == before


def test_a_direct_invocation_is_observed_and_nothing_starts() -> None:
    open_one = partial(
        approvals.open_in_tx,
        questions=[question()],
        account_id="acme",
        invocation_id="inv_1",
        request_id="call-1",
        requested_by="token:tok_app",
    )
    (row,) = in_tx(act=open_one)
    answer = carried(row)
    assert (answer.http_status, answer.continuation_pending) == (200, False)
    assert reread(row).state == "approved" and owed_of(row).state == "done"
    assert acts_of(row)[-1] == "carried_through" and Job.objects.count() == 0


# --- several questions on one job ---------------------------------------------------------------


def test_a_job_goes_on_when_the_last_question_is_approved() -> None:
    rows = asked(count=3)
    for row in rows[:2]:
        answer = carried(row)
        assert (answer.http_status, answer.continuation_pending) == (200, False)
        assert job_of(row).state == "waiting"
    carried(rows[2])
    assert job_of(rows[0]).state == "queued"
    assert sorted(markers_of(rows[0])) == sorted(f"{row.id}.dec-{row.id}" for row in rows)
    assert {owed_of(row).state for row in rows} == {"done"}


def test_one_refusal_refuses_the_job_and_voids_the_rest() -> None:
    rows = asked(count=3)
    call = ToolCall.objects.create(
        id="call_1",
        job_id=rows[0].job_id,
        step=1,
        call_id="c1",
        tool="refund",
        arguments_text="{}",
        arguments_sha256="x",
        idempotency_key="bz:1",
        state="proposed",
        created_at=clock.now(),
        updated_at=clock.now(),
    )
    carried(rows[0])
    carried(rows[1], "denied")
    assert [reread(row).state for row in rows] == ["cancelled", "denied", "cancelled"]
    assert job_of(rows[0]).state == "refused"
    call.refresh_from_db()
    assert (call.state, call.error_code) == ("failed", "approval_denied")
    with pytest.raises(Conflict) as caught:
        carried(rows[2])
    assert caught.value.error_code == "cancelled"
    for row in rows[:2]:
        with pytest.raises(Conflict):
            consume(row)


def test_a_refusal_voids_the_rest_or_does_not_happen() -> None:
    rows = asked(count=2)
    with mock.patch.object(continuations, "void_in_tx", side_effect=Boom):
        assert carried(rows[0], "denied").http_status == 503
    assert job_of(rows[0]).state == "waiting" and reread(rows[1]).state == "open"
    make_due(rows[0])
    sweep()
    assert job_of(rows[0]).state == "refused" and reread(rows[1]).state == "cancelled"


def test_an_expired_question_refuses_the_job_with_its_siblings() -> None:
    rows = asked(count=2)
    let_expire(rows[0])
    approvals.expire_page(limit=10)
    sweep()
    assert (job_of(rows[0]).state, job_of(rows[0]).error_code) == ("refused", "approval_expired")
    assert [reread(row).state for row in rows] == ["expired", "cancelled"]


@pytest.mark.parametrize("order_of", [(0, 1), (1, 0)])
def test_an_approval_beside_a_refusal_admits_nothing_in_any_order(
    order_of: tuple[int, int],
) -> None:
    rows = asked(count=2)
    decided(rows[0], "approved")
    decided(rows[1], "denied")
    for index in order_of:
        carry(rows[index])
    assert job_of(rows[0]).state == "refused" and markers_of(rows[0]) == []
    assert {owed_of(row).state for row in rows} == {"done"}


# --- once, and never without right ----------------------------------------------------------------


def test_a_used_approval_never_queues_its_job_again() -> None:
    """The admission's marker was lost with its row's history: the use of the grant still speaks."""
    row = one()
    decided(row)
    consume(row)
    found = carry(row)
    assert (found.state, found.admission) == ("carried_through", Admission.REFUSED)
    assert job_of(row).state == "waiting" and markers_of(row) == []


def test_a_decision_admits_its_job_once_whatever_the_job_does_later() -> None:
    row = one()
    decided(row)
    with mock.patch.object(continuations, "_finish", side_effect=Boom):
        assert carry(row).state == "owed"
    consume(row)
    job = claim()
    (second,) = park(job, question(1))
    found = carry(row)
    assert (found.state, found.admission) == ("carried_through", Admission.ALREADY)
    assert job_of(row).state == "waiting" and reread(second).state == "open"
    assert acts_of(row).count("carried_through") == 1


@pytest.mark.parametrize("word", ["approved", "denied"])
def test_a_cancelled_job_stays_cancelled_whatever_was_decided(word: str) -> None:
    row = one()
    decided(row, word)
    voided(row)
    assert carry(row).state == "carried_through"
    assert job_of(row).state == "cancelled"
    assert reread(row).state == ("cancelled" if word == "approved" else "denied")
    assert owed_of(row).state == "done"


def test_an_old_decision_without_continuation_is_left_alone() -> None:
    row = one()
    now = clock.now()
    Approval.objects.filter(id=row.id, state="open").update(
        state="approved",
        decision="approved",
        decision_id="old-1",
        decided_by_kind="user",
        decided_by_id="ann",
        decided_at=now,
    )
    before = everything()
    assert carry(row) == approvals.Carried("carried_through")
    assert carried(row, decision_id="old-1").replayed
    sweep()
    assert everything() == before
    with pytest.raises(NotFound):
        approvals.carry_through(approval_id="apr_none", store=STORE)


# --- in flight ------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["approved", "denied"])
@pytest.mark.parametrize("claims", [False, True])
def test_a_job_in_flight_is_left_for_later(word: str, claims: bool) -> None:
    row = one()
    STORE.resume(job_id=row.job_id, reasons=[Waiting.APPROVAL], also=lambda: None)
    if claims:
        job = claim()
    answer = carried(row, word)
    assert (answer.http_status, answer.continuation_pending) == (200, True)
    owed = owed_of(row)
    assert (owed.state, owed.attempts, owed.error_text) == ("owed", 0, "")
    assert owed.next_attempt_at > clock.db_now()
    job = job if claims else claim()
    STORE.wait(fence=job.fence, reason=Waiting.APPROVAL, also=lambda: None)
    assert sweep()[0].deferred == 1, "not due yet"
    make_due(row)
    assert sweep()[0].settled == 1
    assert job_of(row).state == ("queued" if word == "approved" else "refused")
    assert acts_of(row).count("carried_through") == 1


def test_a_job_that_waits_for_an_operator_is_not_admitted_by_an_approval() -> None:
    row = one()
    STORE.resume(job_id=row.job_id, reasons=[Waiting.APPROVAL], also=lambda: None)
    STORE.wait(fence=claim().fence, reason=Waiting.CALL_UNCERTAIN, also=lambda: None)
    answer = carried(row)
    assert (answer.http_status, answer.continuation_pending) == (200, True)
    assert job_of(row).waiting_reason == "tool_uncertain"
