"""Races of the database store, as theorems: threads with a connection each, on a real server."""

from collections import Counter as Tally
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kernel.errors import LostRace
from kernel.models import Job
from kernel.state import Admission, DatabaseStore, Fence, JobRecord
from tests.state.place import CALLER, NOTHING, OPERATOR, new_job, submitted, waiting
from tests.state.test_database_store import STORE, let_lease_end, markers_of
from tests.usage.flow import at_once

pytestmark = pytest.mark.usefixtures("server_db")
ROUNDS = 10


def claim(owner: str, limit: int = 1) -> list[JobRecord]:
    return STORE.claim(owner=owner, target="agent", limit=limit)


def outcomes_of(*works: Callable[[], Any]) -> list[Any]:
    """What each came to; only a lost race is an answer, every other error fails the test."""
    found = at_once(*works)
    for one in found:
        if isinstance(one, Exception) and not isinstance(one, LostRace):
            raise one
    return found


def test_no_job_is_claimed_twice_and_none_is_left_over() -> None:
    ids = {submitted(STORE, number).id for number in range(80)}
    claims = [partial(claim, f"wrk_{n}", 10) for n in range(8)]
    taken = [job for found in outcomes_of(*claims) for job in found]
    while rest := claim("wrk_last", 10):
        taken += rest
    assert Tally(job.id for job in taken) == Tally(ids)
    assert all(job.fence_token == 1 for job in taken)


def test_of_two_claimers_of_one_job_exactly_one_gets_it() -> None:
    for number in range(ROUNDS):
        submitted(STORE, number)
        found = outcomes_of(partial(claim, "wrk_a"), partial(claim, "wrk_b"))
        ((job,),) = [jobs for jobs in found if jobs]
        row = Job.objects.get(id=job.id)
        assert (row.owner, row.fence_token, row.attempts) == (job.owner, 1, 1)


def test_one_identity_submitted_by_many_at_once_is_one_job() -> None:
    submit = partial(STORE.submit, job=new_job(), actor=CALLER)
    found = outcomes_of(*[submit] * 8)
    assert len({job.id for job, _ in found}) == 1
    assert [created for _, created in found].count(True) == 1
    assert Job.objects.count() == 1


def test_a_cancelled_job_is_never_run_on() -> None:
    for number in range(ROUNDS):
        job = submitted(STORE, number)
        cancel = partial(STORE.cancel, job_id=job.id, actor=OPERATOR, reason="stop", also=NOTHING)
        claims, cancelled = outcomes_of(partial(claim, "wrk_a"), cancel)
        assert cancelled.state == STORE.get(job_id=job.id).state == "cancelled"
        for held in claims:
            with pytest.raises(LostRace):
                STORE.guard(fence=held.fence, act=NOTHING)


def test_a_worker_that_lost_its_lease_cannot_complete() -> None:
    for number in range(ROUNDS):
        job = submitted(STORE, number)
        (held,) = claim("wrk_a")
        let_lease_end(job.id)
        finish = partial(STORE.finish, fence=held.fence, state="done", result_text="late")
        finished, page = outcomes_of(finish, partial(STORE.reclaim, limit=10))
        row = Job.objects.get(id=job.id)
        if isinstance(finished, LostRace):
            assert (page.moved, row.state, row.result_text, row.finished_at) == (
                1,
                "queued",
                "",
                None,
            )
            (again,) = claim("wrk_b")
            STORE.finish(fence=again.fence, state="done")
        else:
            assert (page.moved, row.state, row.result_text) == (0, "done", "late")


def test_a_stale_fence_writes_no_row() -> None:
    job = submitted(STORE)
    (old,) = claim("wrk_a")
    STORE.release(fence=old.fence)
    (held,) = claim("wrk_b")
    forged = Fence(job.id, "wrk_b", held.fence_token - 1)
    before = Job.objects.filter(id=job.id).values().get()
    works = [
        partial(verb, fence=fence, **more)
        for fence in (old.fence, forged)
        for verb, more in (
            (STORE.finish, {"state": "done"}),
            (STORE.release, {}),
            (STORE.wait, {"reason": "approval", "also": NOTHING}),
            (STORE.guard, {"act": NOTHING}),
        )
    ]
    assert all(isinstance(one, LostRace) for one in outcomes_of(*works))
    assert STORE.heartbeat(fences=[old.fence, forged]) == set()
    assert Job.objects.filter(id=job.id).values().get() == before


def test_sixteen_admissions_of_one_decision_admit_once() -> None:
    for number in range(ROUNDS):
        job = waiting(STORE, number)
        admit = partial(
            DatabaseStore.requeue_approved_job_once,
            job_id=job.id,
            marker="apr_1.dec_1",
            may_admit=lambda: "yes",
        )
        found = outcomes_of(*[admit] * 16)
        assert Tally(found) == {Admission.ADMITTED: 1, Admission.ALREADY: 15}
        assert markers_of(job.id) == ["apr_1.dec_1"]
        (held,) = claim("wrk_a")
        assert (held.id, held.fence_token) == (job.id, 2)


def test_decisions_of_sixteen_questions_at_once_all_leave_their_marker() -> None:
    job = waiting(STORE)
    admits = [
        partial(
            DatabaseStore.requeue_approved_job_once,
            job_id=job.id,
            marker=f"apr_{n:02}.dec",
            may_admit=lambda: "wait",
        )
        for n in range(16)
    ]
    assert Tally(outcomes_of(*admits)) == {Admission.WAITS: 16}
    assert sorted(markers_of(job.id)) == [f"apr_{n:02}.dec" for n in range(16)]


def test_an_admission_and_a_cancel_never_both_win() -> None:
    for number in range(ROUNDS):
        job = waiting(STORE, number)
        admit = partial(
            DatabaseStore.requeue_approved_job_once,
            job_id=job.id,
            marker="apr_1.dec_1",
            may_admit=lambda: "yes",
        )
        cancel = partial(STORE.cancel, job_id=job.id, actor=OPERATOR, reason="", also=NOTHING)
        admission, cancelled = outcomes_of(admit, cancel)
        assert admission in (Admission.ADMITTED, Admission.NOT_WAITING)
        assert cancelled.state == STORE.get(job_id=job.id).state == "cancelled"
        assert claim("wrk_a") == []
