"""What every RuntimeStateStore must do, as tests; test_conformance.py runs them on each store.

The tests know the store through the port alone; what the port has no verb for is in `Place`.
"""

from typing import Any

import pytest

from kernel.conf import conf, override
from kernel.errors import Conflict, LostRace, NotFound
from kernel.state.protocol import Fence
from tests.state.place import (
    CALLER,
    NOTHING,
    Boom,
    Counter,
    Place,
    claimed,
    new_job,
    submitted,
    waiting,
)


class StoreConformance:
    """The required verbs. `place` is the subclass's fixture."""

    # --- submit, get, find ------------------------------------------------------------------

    def test_a_new_job_is_queued_and_audited(self, place: Place) -> None:
        job, created = place.store.submit(job=new_job(), actor=CALLER)
        assert created
        assert (job.state, job.attempts, job.fence_token, job.owner) == ("queued", 0, 0, "")
        assert place.store.get(job_id=job.id) == job
        assert place.store.find(account_id="acme", request_id="req-1") == job
        assert place.acts_of(job.id) == ["job.submit"]

    def test_a_repeated_submission_finds_its_job(self, place: Place) -> None:
        first = submitted(place.store)
        assert place.store.submit(job=new_job(), actor=CALLER) == (first, False)
        assert place.acts_of(first.id) == ["job.submit"]

    @pytest.mark.parametrize("other", [{"route_id": "other"}, {"input_text": "{}"}])
    def test_another_content_under_one_request_id_is_a_conflict(
        self, place: Place, other: dict[str, Any]
    ) -> None:
        first = submitted(place.store)
        with pytest.raises(Conflict) as refusal:
            submitted(place.store, **other)
        assert refusal.value.error_code == "job_conflict"
        assert place.store.get(job_id=first.id) == first

    def test_two_accounts_may_use_one_request_id(self, place: Place) -> None:
        one, other = submitted(place.store), submitted(place.store, account_id="globex")
        assert one.id != other.id

    def test_an_unknown_job_is_not_found(self, place: Place) -> None:
        submitted(place.store)
        with pytest.raises(NotFound):
            place.store.get(job_id="job_none")
        with pytest.raises(NotFound):
            place.store.find(account_id="globex", request_id="req-1")

    # --- claim ------------------------------------------------------------------------------

    def test_due_jobs_are_claimed_oldest_first_each_under_a_fresh_fence(self, place: Place) -> None:
        ids = [submitted(place.store, number).id for number in range(3)]
        jobs = place.store.claim(owner="wrk_a", target="agent", limit=2)
        assert [job.id for job in jobs] == ids[:2]
        for job in jobs:
            assert (job.state, job.owner, job.fence_token, job.attempts) == (
                "running",
                "wrk_a",
                1,
                1,
            )
            assert job.lease_expires_at is not None
            assert job.fence == Fence(job.id, "wrk_a", 1)
            assert place.store.get(job_id=job.id) == job
        assert claimed(place.store, owner="wrk_b").id == ids[2]
        assert place.store.claim(owner="wrk_b", target="agent", limit=2) == []

    def test_a_lease_lasts_as_long_as_configured(self, place: Place) -> None:
        submitted(place.store)
        with override(job_lease_seconds=120):
            job = claimed(place.store)
        assert job.lease_expires_at is not None
        assert (job.lease_expires_at - job.updated_at).total_seconds() == 120

    def test_a_claim_takes_its_own_target_and_account_only(self, place: Place) -> None:
        submitted(place.store, 1, target="executor")
        mine = submitted(place.store, 2, target="executor", account_id="globex")
        assert place.store.claim(owner="wrk_a", target="agent", limit=9) == []
        found = place.store.claim(owner="ex_1", target="executor", limit=9, account_id="globex")
        assert [job.id for job in found] == [mine.id]

    def test_a_paused_route_keeps_its_jobs_and_lets_others_pass(self, place: Place) -> None:
        held = submitted(place.store, 1)
        other = submitted(place.store, 2, route_id="other")
        place.pause("route:refunds")
        jobs = place.store.claim(owner="wrk_a", target="agent", limit=9)
        assert [job.id for job in jobs] == [other.id]
        assert place.store.get(job_id=held.id) == held
        place.unpause("route:refunds")
        assert claimed(place.store).id == held.id

    def test_a_global_pause_claims_nothing(self, place: Place) -> None:
        submitted(place.store)
        place.pause("global")
        assert place.store.claim(owner="wrk_a", target="agent", limit=9) == []
        place.unpause("global")
        assert claimed(place.store).state == "running"

    # --- heartbeat, guard -------------------------------------------------------------------

    def test_a_heartbeat_renews_what_is_held_and_tells_what_is_lost(self, place: Place) -> None:
        submitted(place.store, 1)
        submitted(place.store, 2)
        kept, lost = place.store.claim(owner="wrk_a", target="agent", limit=2)
        with override(job_lease_seconds=3000):
            stale = Fence(lost.id, "wrk_a", lost.fence_token + 1)
            foreign = Fence(lost.id, "wrk_b", lost.fence_token)
            renewed = place.store.heartbeat(fences=[kept.fence, stale, foreign])
        assert renewed == {kept.id}
        then = place.store.get(job_id=kept.id).lease_expires_at
        assert then is not None and kept.lease_expires_at is not None
        assert then > kept.lease_expires_at
        assert place.store.get(job_id=lost.id).lease_expires_at == lost.lease_expires_at
        assert place.store.heartbeat(fences=[]) == set()

    def test_an_act_under_a_fence_runs_and_answers(self, place: Place) -> None:
        submitted(place.store)
        act = Counter(answer="saved")
        assert place.store.guard(fence=claimed(place.store).fence, act=act) == "saved"
        assert act.calls == 1

    def test_a_worker_that_lost_its_lease_cannot_act_wait_release_or_finish(
        self, place: Place
    ) -> None:
        submitted(place.store)
        old = claimed(place.store).fence
        place.let_lease_end(old.job_id)
        place.store.reclaim(limit=10)
        now = claimed(place.store, owner="wrk_b")
        act = Counter()
        for attempt in (
            lambda: place.store.guard(fence=old, act=act),
            lambda: place.store.wait(fence=old, reason="approval", also=act),
            lambda: place.store.release(fence=old),
            lambda: place.store.finish(fence=old, state="done", also=act),
        ):
            with pytest.raises(LostRace) as refusal:
                attempt()
            assert refusal.value.error_code == "lost_lease"
        assert act.calls == 0
        assert place.store.heartbeat(fences=[old]) == set()
        assert place.store.get(job_id=old.job_id) == now

    def test_the_same_owner_with_an_older_token_has_lost_too(self, place: Place) -> None:
        submitted(place.store)
        old = claimed(place.store).fence
        place.store.release(fence=old)
        now = claimed(place.store)
        assert (now.owner, now.fence_token) == (old.owner, old.token + 1)
        act = Counter()
        with pytest.raises(LostRace):
            place.store.guard(fence=old, act=act)
        with pytest.raises(LostRace):
            place.store.finish(fence=old, state="done", also=act)
        assert act.calls == 0
        assert place.store.get(job_id=now.id) == now

    # --- wait, release, finish --------------------------------------------------------------

    def test_a_job_waits_together_with_what_it_waits_for(self, place: Place) -> None:
        submitted(place.store)
        job = claimed(place.store)
        act = Counter()
        place.store.wait(fence=job.fence, reason="approval", also=act)
        found = place.store.get(job_id=job.id)
        assert act.calls == 1
        assert (found.state, found.waiting_reason) == ("waiting", "approval")
        assert (found.owner, found.lease_expires_at, found.attempts) == ("", None, 0)
        assert place.store.claim(owner="wrk_a", target="agent", limit=1) == []

    def test_what_cannot_be_waited_for_leaves_the_job_running(self, place: Place) -> None:
        submitted(place.store)
        job = claimed(place.store)
        with pytest.raises(Boom):
            place.store.wait(fence=job.fence, reason="approval", also=Counter(error=Boom()))
        assert place.store.get(job_id=job.id) == job
        with pytest.raises(ValueError, match="tea"):
            place.store.wait(fence=job.fence, reason="tea", also=NOTHING)

    def test_an_interrupted_job_is_counted_and_parked_with_the_reason(self, place: Place) -> None:
        submitted(place.store)
        for number in range(1, conf.worker_lost_max + 1):
            job = claimed(place.store)
            assert job.attempts == number
            place.store.release(fence=job.fence, interrupted="the engine is away")
        parked = place.store.get(job_id=job.id)
        assert (parked.state, parked.owner) == ("parked", "")
        assert (parked.error_code, parked.error_text) == ("interrupted", "the engine is away")
        assert place.store.resume(job_id=job.id, reasons=["worker_lost"], also=NOTHING)
        assert claimed(place.store).attempts == 1

    def test_a_released_job_is_due_later_and_its_attempt_is_not_counted(self, place: Place) -> None:
        submitted(place.store)
        first = claimed(place.store)
        place.store.release(fence=first.fence)
        second = claimed(place.store)
        assert (second.attempts, second.fence_token) == (1, 2)
        place.store.release(fence=second.fence, retry_seconds=3600)
        assert place.store.claim(owner="wrk_a", target="agent", limit=1) == []
        found = place.store.get(job_id=first.id)
        assert (found.state, found.attempts, found.owner) == ("queued", 0, "")
        assert (found.due_at - found.updated_at).total_seconds() == pytest.approx(3600, abs=5)

    @pytest.mark.parametrize("state", ["done", "failed", "refused"])
    def test_a_job_finishes_once_and_a_lost_acknowledgement_is_answered(
        self, place: Place, state: str
    ) -> None:
        submitted(place.store)
        job = claimed(place.store)
        act = Counter()
        for _ in range(2):
            place.store.finish(
                fence=job.fence,
                state=state,
                result_text="ok \ud800",
                error_code="why",
                error_text="because",
                also=act,
            )
        found = place.store.get(job_id=job.id)
        assert (found.state, found.error_code, found.error_text) == (state, "why", "because")
        assert found.result_text == "ok ?"
        assert found.finished_at is not None and found.lease_expires_at is None
        assert act.calls == 1

    def test_a_finish_that_cannot_write_all_writes_nothing(self, place: Place) -> None:
        submitted(place.store)
        job = claimed(place.store)
        with pytest.raises(Boom):
            place.store.finish(fence=job.fence, state="done", also=Counter(error=Boom()))
        assert place.store.get(job_id=job.id) == job
        with pytest.raises(ValueError, match="queued"):
            place.store.finish(fence=job.fence, state="queued")

    # --- reclaim ----------------------------------------------------------------------------

    def test_a_job_whose_lease_ended_is_queued_again_and_others_keep_theirs(
        self, place: Place
    ) -> None:
        for number in range(3):
            submitted(place.store, number)
        jobs = place.store.claim(owner="wrk_a", target="agent", limit=3)
        place.let_lease_end(jobs[1].id)
        page = place.store.reclaim(limit=10)
        assert (page.scanned, page.moved, page.parked, page.cursor) == (1, 1, 0, "")
        assert tuple(page.job_ids) == (jobs[1].id,)
        assert place.store.get(job_id=jobs[0].id) == jobs[0]
        assert claimed(place.store, owner="wrk_b").attempts == 2

    def test_a_full_page_says_that_there_is_more(self, place: Place) -> None:
        for number in range(3):
            submitted(place.store, number)
        for job in place.store.claim(owner="wrk_a", target="agent", limit=3):
            place.let_lease_end(job.id)
        first = place.store.reclaim(limit=2)
        assert (first.moved, bool(first.cursor)) == (2, True)
        last = place.store.reclaim(cursor=first.cursor, limit=2)
        assert (last.moved, last.cursor) == (1, "")

    def test_a_job_that_kills_its_workers_is_parked_until_an_operator_resumes_it(
        self, place: Place
    ) -> None:
        submitted(place.store)
        for _ in range(conf.worker_lost_max):
            job = claimed(place.store)
            place.let_lease_end(job.id)
            page = place.store.reclaim(limit=10)
        assert (page.moved, page.parked) == (0, 1)
        found = place.store.get(job_id=job.id)
        assert (found.state, found.error_code, found.owner) == ("parked", "worker_lost", "")
        assert place.store.claim(owner="wrk_a", target="agent", limit=1) == []
        assert place.store.resume(job_id=job.id, reasons=["worker_lost"], also=NOTHING)
        again = claimed(place.store)
        assert (again.attempts, again.error_code) == (1, "")

    def test_an_orderly_end_lets_a_job_lose_workers_anew(self, place: Place) -> None:
        job = waiting(place.store)
        for _ in range(conf.worker_lost_max + 1):
            assert place.store.resume(job_id=job.id, reasons=["approval"], also=NOTHING)
            lost = claimed(place.store)
            place.let_lease_end(lost.id)
            assert place.store.reclaim(limit=10).parked == 0
            held = claimed(place.store)
            place.store.wait(fence=held.fence, reason="approval", also=NOTHING)
