"""Races about decisions, as theorems: threads with a connection each, on a real server."""

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kernel import approvals
from kernel.approvals import decisions
from kernel.audit import Actor
from kernel.errors import Conflict, KernelError, LostRace
from kernel.models import Approval, AuditRow, Continuation, Job
from kernel.state import Admission, DatabaseStore
from tests.approvals.place import (
    STORE,
    acts_of,
    asked,
    carried,
    consume,
    in_tx,
    job_of,
    let_expire,
    make_due,
    markers_of,
    one,
    order,
    owed_of,
    question,
    reread,
    voided,
)
from tests.usage.flow import at_once

pytestmark = pytest.mark.usefixtures("server_db")
ROUNDS = 10


def outcomes_of(*works: Callable[[], Any]) -> list[Any]:
    """What each came to: an answer or a refusal. Any other error fails the test."""
    found = at_once(*works)
    for each in found:
        if isinstance(each, Exception) and not isinstance(each, KernelError):
            raise each
    return found


def answers(found: list[Any]) -> list[approvals.Answer]:
    return [each for each in found if isinstance(each, approvals.Answer)]


def by(row: Approval, number: int, decision: str = "approved") -> Callable[[], Any]:
    actor = Actor("user", f"person-{number}")
    return partial(carried, row, decision, decision_id=f"dec-{row.id}-{number}", actor=actor)


def is_consistent(row: Approval) -> None:
    """One decision, with its continuation and its one audit row, all carried through."""
    found, owed = reread(row), Continuation.objects.get(approval_id=row.id)
    assert (found.decision, found.decision_id) == (owed.decision, owed.decision_id)
    acts = Counter(acts_of(row))
    assert acts["decided"] == 1 and acts["carried_through"] <= 1


def test_of_sixteen_deciders_one_wins_and_the_others_learn_its_name() -> None:
    for number in range(4):
        row = one(f"req-{number}")
        found = outcomes_of(*(by(row, n) for n in range(16)))
        (won,) = answers(found)
        losers = [each for each in found if isinstance(each, Conflict)]
        assert len(losers) == 15
        assert {each.error_code for each in losers} == {"already_decided"}
        assert {each.details["by"] for each in losers} == {won.approval.decided_by_id}
        is_consistent(row)
        assert job_of(row).state == "queued" and len(markers_of(row)) == 1


def test_approve_and_deny_at_once_leave_one_state() -> None:
    for number in range(ROUNDS):
        row = one(f"req-{number}")
        found = outcomes_of(by(row, 1, "approved"), by(row, 2, "denied"))
        (won,) = answers(found)
        (lost,) = [each for each in found if isinstance(each, Conflict)]
        assert lost.details["decision"] == won.approval.decision == reread(row).decision
        expected = {"approved": "queued", "denied": "refused"}[won.approval.decision]
        assert job_of(row).state == expected
        is_consistent(row)


def test_one_decision_sent_twenty_times_at_once_is_one_decision_and_one_admission() -> None:
    row = one()
    found = outcomes_of(*[partial(carried, row)] * 20)
    assert {each.http_status for each in answers(found)} == {200} and len(answers(found)) == 20
    fields = ("decision", "decision_id", "decided_by_kind", "decided_by_id", "decided_at", "reason")
    assert len({tuple(getattr(each.approval, f) for f in fields) for each in found}) == 1
    assert [each.replayed for each in found].count(False) == 1
    is_consistent(row)
    assert job_of(row).state == "queued" and len(markers_of(row)) == 1
    assert acts_of(row) == ["opened", "decided", "carried_through"]


def test_one_key_used_on_two_approvals_at_once_decides_one_of_them() -> None:
    for number in range(ROUNDS):
        rows = [one(f"req-{number}-{n}") for n in range(2)]
        found = outcomes_of(*(partial(carried, row, decision_id=f"key-{number}") for row in rows))
        assert len(answers(found)) == 1
        (lost,) = [each for each in found if isinstance(each, Conflict)]
        assert lost.error_code == "decision_id_conflict"
        assert sorted(reread(row).state for row in rows) == ["approved", "open"]


def test_a_decision_and_expiry_never_both_happen() -> None:
    for number in range(ROUNDS):
        row = one(f"req-{number}")
        barrier = threading.Barrier(2)

        def expire(row: Approval = row, barrier: threading.Barrier = barrier) -> bool:
            let_expire(row)
            barrier.wait(10)
            return decisions.expire(approval_id=row.id)

        def decide(row: Approval = row, barrier: threading.Barrier = barrier) -> Any:
            barrier.wait(10)
            return carried(row)

        expired, answer = outcomes_of(expire, decide)
        assert isinstance(answer, Conflict) and answer.error_code == "expired"
        assert expired in (True, False), "the late decision may have recorded the expiry itself"
        assert reread(row).decision == "expired"
        is_consistent(row)


def test_a_decision_that_meets_its_end_is_in_time_or_expired() -> None:
    """Nobody waits for the clock: the end moves into the past while people decide."""
    for number in range(ROUNDS):
        row = one(f"req-{number}")
        found = outcomes_of(
            partial(let_expire, row), by(row, 1), partial(approvals.expire_page, limit=10)
        )
        assert not isinstance(found[2], Exception)
        if isinstance(found[1], Conflict):
            assert found[1].error_code == "expired"
            assert reread(row).decision == "expired"
        else:
            assert reread(row).decision == "approved"
        is_consistent(row)


@pytest.mark.parametrize("word", ["approved", "denied"])
def test_a_cancelled_job_never_runs_whoever_came_first(word: str) -> None:
    for number in range(ROUNDS):
        row = one(f"req-{number}")
        answer, cancelled = outcomes_of(by(row, 1, word), partial(voided, row))
        if isinstance(cancelled, Conflict):  # refused by the denial first
            assert word == "denied" and job_of(row).state == "refused"
        else:
            assert job_of(row).state == "cancelled"
        if isinstance(answer, Conflict):
            assert answer.error_code == "cancelled"
            assert not Continuation.objects.filter(approval_id=row.id).exists()
        else:
            make_due(row)
            approvals.carry_through(approval_id=row.id, store=STORE)
            is_consistent(row)
            assert owed_of(row).state == "done"
        if word == "approved":
            assert reread(row).state == "cancelled"
            with pytest.raises(Conflict):
                consume(row)


def test_siblings_decided_at_once_admit_their_job_once() -> None:
    for number in range(ROUNDS):
        rows = asked(f"req-{number}", count=3)
        found = outcomes_of(*(by(row, 1) for row in rows))
        assert len(answers(found)) == 3
        for row in rows:
            make_due(row)
            is_consistent(row)
        assert job_of(rows[0]).state == "queued"
        assert len(set(markers_of(rows[0]))) == len(markers_of(rows[0])) >= 1


def test_an_approval_and_a_refusal_of_siblings_at_once_refuse_the_job() -> None:
    for number in range(ROUNDS):
        rows = asked(f"req-{number}", count=2)
        outcomes_of(by(rows[0], 1), by(rows[1], 1, "denied"))
        assert job_of(rows[0]).state == "refused"
        assert reread(rows[0]).state == "cancelled"
        assert reread(rows[1]).state == "denied"


class Counting(DatabaseStore):
    """The database store; counts what its admissions came to."""

    def __init__(self) -> None:
        self.answers: list[str] = []

    def requeue_approved_job_once(self, **fields: Any) -> Admission:
        self.answers.append(STORE.requeue_approved_job_once(**fields))
        return self.answers[-1]


def test_door_and_maintenance_at_once_admit_once_and_observe_once() -> None:
    for number in range(ROUNDS):
        row = one(f"req-{number}")
        approvals.decide(order=order(row))
        store = Counting()
        carry = partial(approvals.carry_through, approval_id=row.id, store=store)
        page = partial(approvals.continuation_page(store=store), limit=50)
        outcomes_of(carry, page, carry, page)
        assert store.answers.count(Admission.ADMITTED) == 1
        assert acts_of(row) == ["opened", "decided", "carried_through"]
        assert job_of(row).state == "queued"
        make_due(row)
        approvals.carry_through(approval_id=row.id, store=store)
        assert owed_of(row).state == "done"


def test_two_maintenance_processes_share_the_rows_and_lose_none() -> None:
    rows = [one(f"req-{number}") for number in range(40)]
    for row in rows:
        approvals.decide(order=order(row))
    store = Counting()
    pages = [partial(approvals.continuation_page(store=store), limit=50)] * 3
    reports = outcomes_of(*pages)
    assert sum(report.settled for report in reports) == 40
    assert store.answers == [Admission.ADMITTED] * 40, "a row is claimed before it is worked on"
    assert AuditRow.objects.filter(action="approval.carried_through").count() == 40
    assert Job.objects.filter(state="queued").count() == 40


def test_a_grant_is_used_once_whoever_asks() -> None:
    row = one()
    carried(row)
    found = outcomes_of(*[partial(consume, row)] * 6)
    assert len([each for each in found if isinstance(each, approvals.Grant)]) == 1
    assert {each.error_code for each in found if isinstance(each, Conflict)} == {"not_approved"}


def test_a_grant_is_used_or_voided_never_both() -> None:
    for number in range(ROUNDS):
        row = one(f"req-{number}")
        carried(row)
        grant, _ = outcomes_of(partial(consume, row), partial(voided, row))
        used = isinstance(grant, approvals.Grant)
        assert reread(row).state == ("consumed" if used else "cancelled")
        assert Counter(acts_of(row))["consumed"] == int(used)


def test_a_question_is_replaced_once() -> None:
    row = one()
    replace = partial(
        in_tx,
        act=partial(
            approvals.replace_in_tx, approval_id=row.id, question=question(1), reason="drift"
        ),
    )
    found = outcomes_of(*[replace] * 5)
    assert len([each for each in found if isinstance(each, Approval)]) == 1
    assert all(isinstance(each, Approval | Conflict | LostRace) for each in found)
    assert Approval.objects.filter(state="open").count() == 1
