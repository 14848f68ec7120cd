"""What a state store must do for replays: queue an ended child job once per replay (F4, F5, F8)."""

from collections.abc import Callable
from typing import Any

import pytest

from kernel.errors import Conflict, LostRace, NotFound
from kernel.state.protocol import ENSURE_REPLAY, REQUEUE_DELIVERY, Admission, JobRecord
from tests.state.place import NOTHING, OPERATOR, Boom, Counter, Place, claimed, submitted

MARKER = "replay.dlq_1"


class DeliveryConformance:
    """ensure_executor_replay, requeue_delivery_job_once; `place.markers_of` reads its markers."""

    @pytest.fixture(autouse=True)
    def capable(self, place: Place) -> None:
        assert {ENSURE_REPLAY, REQUEUE_DELIVERY} <= place.store.capabilities
        place.store.ensure_executor_replay()

    def test_a_failed_child_is_queued_once_and_runs_anew(self, place: Place) -> None:
        job = failed(place)
        act = Counter()
        assert requeue(place, job.id, also=act) is Admission.ADMITTED
        found = place.store.get(job_id=job.id)
        assert (found.state, found.attempts, found.owner) == ("queued", 0, "")
        assert (found.error_code, found.error_text, found.result_text) == ("", "", "")
        assert found.finished_at is None
        kept = ("id", "account_id", "request_id", "route_id", "target", "parent_id", "input_text")
        assert all(getattr(found, name) == getattr(job, name) for name in kept)
        assert requeue(place, job.id, also=act) is Admission.ALREADY
        assert act.calls == 1
        assert claimed(place.store).fence_token == job.fence_token + 1

    def test_a_cancelled_and_a_parked_child_are_queued_too(self, place: Place) -> None:
        cancelled = submitted(place.store, 1)
        place.store.cancel(job_id=cancelled.id, actor=OPERATOR, reason="", also=NOTHING)
        assert requeue(place, cancelled.id) is Admission.ADMITTED
        place.store.finish(fence=claimed(place.store).fence, state="done")
        parked = submitted(place.store, 2)
        while place.store.get(job_id=parked.id).state != "parked":
            held = claimed(place.store)
            place.let_lease_end(held.id)
            place.store.reclaim(limit=10)
        assert requeue(place, parked.id) is Admission.ADMITTED
        assert claimed(place.store).attempts == 1

    def test_a_child_that_failed_again_is_not_admitted_for_the_same_replay(
        self, place: Place
    ) -> None:
        job = failed(place)
        requeue(place, job.id)
        place.store.finish(fence=claimed(place.store).fence, state="failed", error_code="again")
        assert requeue(place, job.id) is Admission.ALREADY
        assert place.store.get(job_id=job.id).error_code == "again"
        assert requeue(place, job.id, marker="replay.dlq_2") is Admission.ADMITTED
        assert place.markers_of(job.id) == [MARKER, "replay.dlq_2"]

    def test_a_marker_survives_what_happens_to_the_job(self, place: Place) -> None:
        job = failed(place)
        requeue(place, job.id)
        held = claimed(place.store)
        place.store.heartbeat(fences=[held.fence])
        place.store.release(fence=held.fence)
        held = claimed(place.store)
        place.let_lease_end(held.id)
        place.store.reclaim(limit=10)
        place.store.finish(fence=claimed(place.store).fence, state="done")
        assert place.markers_of(job.id) == [MARKER]

    def test_a_child_under_way_or_done_is_left_alone(self, place: Place) -> None:
        job = submitted(place.store)
        assert requeue(place, job.id) is Admission.IN_FLIGHT
        held = claimed(place.store)
        assert requeue(place, job.id) is Admission.IN_FLIGHT
        place.store.finish(fence=held.fence, state="done", result_text="sent")
        assert requeue(place, job.id) is Admission.NOT_WAITING
        assert place.store.get(job_id=job.id).result_text == "sent"
        assert place.markers_of(job.id) == []
        with pytest.raises(NotFound):
            requeue(place, "job_none")

    def test_a_binding_that_does_not_fit_is_named_and_queues_nothing(self, place: Place) -> None:
        job = failed(place)
        act = Counter()
        with pytest.raises(Conflict) as refusal:
            requeue(place, job.id, verify=lambda one: "parent_id", also=act)
        assert refusal.value.error_code == "binding_mismatch"
        assert refusal.value.details["binding"] == "parent_id"
        assert (act.calls, place.markers_of(job.id)) == (0, [])
        assert place.store.get(job_id=job.id) == job

    def test_the_bindings_are_asked_about_the_job_as_it_is(self, place: Place) -> None:
        job = failed(place)
        seen: list[JobRecord] = []

        def verify(one: JobRecord) -> str:
            seen.append(one)
            return ""

        requeue(place, job.id, verify=verify)
        assert seen == [job]

    def test_an_act_that_fails_leaves_no_marker(self, place: Place) -> None:
        job = failed(place)
        with pytest.raises(Boom):
            requeue(place, job.id, also=Counter(error=Boom()))
        assert (place.store.get(job_id=job.id), place.markers_of(job.id)) == (job, [])
        assert requeue(place, job.id) is Admission.ADMITTED

    def test_the_worker_of_the_earlier_run_cannot_finish_the_new_one(self, place: Place) -> None:
        submitted(place.store)
        old = claimed(place.store).fence
        place.store.finish(fence=old, state="failed", error_code="first")
        requeue(place, old.job_id)
        with pytest.raises(LostRace):
            place.store.finish(fence=old, state="failed", error_code="first")
        assert place.store.get(job_id=old.job_id).state == "queued"


def failed(place: Place, number: int = 1) -> JobRecord:
    """A job whose only run failed."""
    submitted(place.store, number, parent_id="job_parent")
    job = claimed(place.store)
    place.store.finish(fence=job.fence, state="failed", error_code="x", error_text="no route")
    return place.store.get(job_id=job.id)


def requeue(
    place: Place,
    job_id: str,
    *,
    marker: str = MARKER,
    verify: Callable[[JobRecord], str] = lambda job: "",
    also: Any = None,
) -> Admission:
    return place.store.requeue_delivery_job_once(
        job_id=job_id, marker=marker, verify=verify, also=also
    )
