"""What every state store must do for decisions: refuse, resume, cancel, admit once (C5, C8)."""

from collections.abc import Callable
from typing import Any

import pytest

from kernel.errors import Conflict, KernelError, LostRace, NotFound
from kernel.state.protocol import REQUEUE_APPROVED, Admission
from tests.state.place import (
    NOTHING,
    OPERATOR,
    Boom,
    Counter,
    Place,
    claimed,
    submitted,
    waiting,
)


class DecisionConformance:
    """refuse, resume, cancel, and the optional admission of a decision (C5, C8, C13)."""

    def test_a_waiting_job_is_refused_with_its_reason(self, place: Place) -> None:
        job = waiting(place.store)
        act = Counter()
        assert place.store.refuse(job_id=job.id, code="denied", reason="no", also=act)
        found = place.store.get(job_id=job.id)
        assert (found.state, found.error_code, found.error_text) == ("refused", "denied", "no")
        assert found.waiting_reason == "" and found.finished_at is not None
        assert not place.store.refuse(job_id=job.id, code="denied", reason="again", also=act)
        assert act.calls == 2
        assert place.store.get(job_id=job.id) == found
        with pytest.raises(NotFound):
            place.store.refuse(job_id="job_none", code="denied", reason="no")

    def test_a_job_that_may_still_run_is_not_refused_and_nothing_of_it_is_ended(
        self, place: Place
    ) -> None:
        job, act = submitted(place.store), Counter()
        assert not place.store.refuse(job_id=job.id, code="denied", reason="no", also=act)
        held = claimed(place.store)
        assert not place.store.refuse(job_id=job.id, code="denied", reason="no", also=act)
        assert act.calls == 0
        assert place.store.get(job_id=job.id) == held

    def test_a_refusal_that_cannot_write_all_writes_nothing(self, place: Place) -> None:
        job = waiting(place.store)
        with pytest.raises(Boom):
            place.store.refuse(job_id=job.id, code="x", reason="", also=Counter(error=Boom()))
        assert place.store.get(job_id=job.id) == job

    def test_a_job_is_resumed_for_what_it_waits_for_only(self, place: Place) -> None:
        job = waiting(place.store, reason="outcome_unknown")
        act = Counter()
        assert not place.store.resume(job_id=job.id, reasons=["tool_uncertain"], also=act)
        assert act.calls == 0
        reasons = ["tool_uncertain", "outcome_unknown"]
        assert place.store.resume(job_id=job.id, reasons=reasons, also=act)
        assert act.calls == 1
        found = place.store.get(job_id=job.id)
        assert (found.state, found.waiting_reason) == ("queued", "")
        assert not place.store.resume(job_id=job.id, reasons=reasons, also=act)

    def test_a_cancelled_job_stays_cancelled_whoever_holds_it(self, place: Place) -> None:
        submitted(place.store)
        job = claimed(place.store)
        act = Counter()
        found = place.store.cancel(job_id=job.id, actor=OPERATOR, reason="stop", also=act)
        assert (found.state, found.owner) == ("cancelled", "")
        again = place.store.cancel(job_id=job.id, actor=OPERATOR, reason="stop", also=act)
        assert again == found == place.store.get(job_id=job.id)
        assert act.calls == 1
        with pytest.raises(LostRace):
            place.store.finish(fence=job.fence, state="done")
        assert not place.store.resume(job_id=job.id, reasons=["approval"], also=act)
        assert place.acts_of(job.id) == ["job.submit", "job.cancel"]

    def test_a_finished_job_is_not_cancelled(self, place: Place) -> None:
        submitted(place.store)
        job = claimed(place.store)
        place.store.finish(fence=job.fence, state="done", result_text="ok")
        act = Counter()
        with pytest.raises(Conflict) as refusal:
            place.store.cancel(job_id=job.id, actor=OPERATOR, reason="", also=act)
        assert (refusal.value.error_code, refusal.value.details["state"]) == (
            "job_finished",
            "done",
        )
        assert act.calls == 0
        with pytest.raises(NotFound):
            place.store.cancel(job_id="job_none", actor=OPERATOR, reason="", also=act)


class AdmissionConformance:
    """requeue_approved_job_once: one decision admits its job at most once (C5)."""

    @pytest.fixture(autouse=True)
    def capable(self, place: Place) -> None:
        assert REQUEUE_APPROVED in place.store.capabilities

    def test_one_decision_admits_its_job_once_even_after_a_new_run(self, place: Place) -> None:
        job = waiting(place.store)
        asked = Counter(answer="yes")
        assert _admit(place, job.id, asked) is Admission.ADMITTED
        assert _admit(place, job.id, asked) is Admission.ALREADY
        again = claimed(place.store)
        place.store.wait(fence=again.fence, reason="approval", also=NOTHING)
        assert _admit(place, job.id, asked) is Admission.ALREADY
        assert asked.calls == 1
        assert place.store.get(job_id=job.id).state == "waiting"
        assert place.markers_of(job.id) == ["apr_1.dec_1"]

    def test_a_marker_survives_everything_that_happens_to_the_job(self, place: Place) -> None:
        job = waiting(place.store)
        _admit(place, job.id, Counter(answer="yes"))
        held = claimed(place.store)
        place.store.heartbeat(fences=[held.fence])
        place.store.release(fence=held.fence)
        held = claimed(place.store)
        place.let_lease_end(held.id)
        place.store.reclaim(limit=10)
        held = claimed(place.store)
        place.store.wait(fence=held.fence, reason="tool_uncertain", also=NOTHING)
        place.store.resume(job_id=job.id, reasons=["tool_uncertain"], also=NOTHING)
        place.store.finish(fence=claimed(place.store).fence, state="done")
        assert place.markers_of(job.id) == ["apr_1.dec_1"]

    def test_a_job_with_other_open_questions_gets_the_marker_and_goes_on_waiting(
        self, place: Place
    ) -> None:
        job = waiting(place.store)
        assert _admit(place, job.id, Counter(answer="wait")) is Admission.WAITS
        assert place.store.get(job_id=job.id).state == "waiting"
        last = _admit(place, job.id, Counter(answer="yes"), marker="apr_2.dec_2")
        assert last is Admission.ADMITTED
        assert place.markers_of(job.id) == ["apr_1.dec_1", "apr_2.dec_2"]

    @pytest.mark.parametrize("answer", ["no", "", "YES", None])
    def test_what_is_no_clear_yes_admits_nothing(self, place: Place, answer: Any) -> None:
        job = waiting(place.store)
        assert _admit(place, job.id, Counter(answer=answer)) is Admission.REFUSED
        assert place.store.get(job_id=job.id) == job
        assert place.markers_of(job.id) == []

    def test_a_job_that_is_under_way_is_left_for_later(self, place: Place) -> None:
        job = submitted(place.store)
        asked = Counter(answer="yes")
        assert _admit(place, job.id, asked) is Admission.IN_FLIGHT
        held = claimed(place.store)
        assert _admit(place, job.id, asked) is Admission.IN_FLIGHT
        place.store.wait(fence=held.fence, reason="tool_uncertain", also=NOTHING)
        assert _admit(place, job.id, asked) is Admission.IN_FLIGHT
        assert (asked.calls, place.markers_of(job.id)) == (0, [])

    def test_a_job_that_has_ended_is_not_admitted(self, place: Place) -> None:
        job = waiting(place.store)
        place.store.cancel(job_id=job.id, actor=OPERATOR, reason="", also=NOTHING)
        assert _admit(place, job.id, Counter(answer="yes")) is Admission.NOT_WAITING
        assert place.store.get(job_id=job.id).state == "cancelled"
        with pytest.raises(NotFound):
            _admit(place, "job_none", Counter(answer="yes"))

    def test_a_question_that_fails_leaves_no_marker(self, place: Place) -> None:
        job = waiting(place.store)
        with pytest.raises(KernelError):
            _admit(place, job.id, Counter(error=KernelError("no answer")))
        assert (place.store.get(job_id=job.id), place.markers_of(job.id)) == (job, [])
        assert _admit(place, job.id, Counter(answer="yes")) is Admission.ADMITTED


def _admit(
    place: Place, job_id: str, may_admit: Callable[[], str], *, marker: str = "apr_1.dec_1"
) -> Admission:
    store: Any = place.store
    answer: Admission = store.requeue_approved_job_once(
        job_id=job_id, marker=marker, may_admit=may_admit
    )
    return answer
