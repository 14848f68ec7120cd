"""Replay through executors: the verified original child, never the parent, once (F4, F5, F8)."""

import pytest

from kernel import schema
from kernel.delivery import dead_letters, lookup, replay
from kernel.errors import CommitOutcomeUnknown, Conflict, Unavailable
from kernel.models import DeadLetter, DeadLetterReplay, Job, Notification
from kernel.state import DatabaseStore
from kernel.state.protocol import ENSURE_REPLAY, REQUEUE_DELIVERY
from tests.approvals.place import without
from tests.delivery.letters import (
    ANN,
    BEN,
    STORE,
    acts_of,
    child,
    dead_child,
    everything,
    group_of,
    markers_of,
    reread,
    run_child,
)
from tests.support.commits import LANDED, VANISHED, at_commit

pytestmark = pytest.mark.usefixtures("kernel_db")


def again(letter: DeadLetter, store: DatabaseStore = STORE) -> replay.Replayed:
    return replay.replay(dead_letter_id=letter.id, actor=ANN, store=store)


def child_of(letter: DeadLetter) -> str:
    return lookup.get_dead_letter(dead_letter_id=letter.id).original_child_id


def test_the_original_child_is_queued_again_with_everything_it_had() -> None:
    letter = dead_child()
    before = Job.objects.get(id=child_of(letter))
    told = again(letter)
    assert (told.state, told.child_job_id) == ("queued", before.id)
    assert told.notification_id == letter.notification_id
    job = Job.objects.get(id=before.id)
    assert (job.state, job.attempts, job.error_code) == ("queued", 0, "")
    kept = ("account_id", "request_id", "target", "parent_id", "input_text", "created_at")
    assert all(getattr(job, name) == getattr(before, name) for name in kept)
    row = Notification.objects.get(id=letter.notification_id)
    assert (row.state, row.replay_of_id, row.finished_at) == ("with_executor", letter.id, None)
    assert reread(letter).state == "resolved" and group_of(letter) == (1, 0)
    assert markers_of(job.id) == [told.replay_identity]
    assert acts_of(letter) == ["replay"]
    assert Job.objects.count() == Notification.objects.count() == 1


def test_a_delivered_replay_ends_the_notification() -> None:
    letter = dead_child()
    told = again(letter)
    run_child(told.child_job_id, delivered=True)
    assert Notification.objects.get(id=told.notification_id).state == "delivered"
    assert again(letter).state == "already_queued"
    assert Job.objects.get(id=told.child_job_id).state == "done"


def test_a_replay_that_fails_makes_a_new_dead_letter_that_can_be_replayed_again() -> None:
    first = dead_child()
    told = again(first)
    assert again(first).state == "already_queued"
    run_child(told.child_job_id, error="again")
    (second,) = DeadLetter.objects.exclude(id=first.id)
    assert (second.parent_id, second.state, reread(first).state) == (first.id, "open", "resolved")
    assert child_of(second) == told.child_job_id
    assert again(first).state == "already_queued"
    assert Job.objects.get(id=told.child_job_id).state == "failed"
    assert again(second).state == "queued"
    assert markers_of(told.child_job_id) == [f"replay.{first.id}", f"replay.{second.id}"]
    found = lookup.lineage_of(dead_letter_id=second.id)
    assert [one.id for one in found] == [first.id, second.id]
    assert len(lookup.attempts_of(notification_id=first.notification_id)) == 2


def test_the_answer_tells_that_the_child_runs() -> None:
    letter = dead_child()
    told = again(letter)
    STORE.claim(owner="tok_exec", target="executor", limit=1)
    assert again(letter).state == "still_in_flight"
    assert markers_of(told.child_job_id) == [told.replay_identity]


@pytest.mark.parametrize("state", ["queued", "running"])
def test_while_the_original_child_is_under_way_nothing_is_queued(state: str) -> None:
    letter = dead_child()
    Job.objects.filter(id=child_of(letter)).update(state=state)
    before = everything()
    told = again(letter)
    assert (told.state, told.admitted) == ("still_in_flight", False)
    assert everything() == before


def test_a_child_that_ended_well_is_not_sent_again() -> None:
    letter = dead_child()
    Job.objects.filter(id=child_of(letter)).update(state="done")
    before = everything()
    with pytest.raises(Conflict) as refusal:
        again(letter)
    assert refusal.value.error_code == "child_ended" and everything() == before


# --- bindings -------------------------------------------------------------------------------------

FORGED = {
    "target": {"target": "agent"},
    "account_id": {"account_id": "globex"},
    "parent_id": {"parent_id": "job_other"},
    "request_id": {"request_id": "ntf_other"},
    "input_text": {"input_text": '{"recipient":"mallory"}'},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_binding_that_does_not_verify_is_refused_and_named(name: str) -> None:
    letter = dead_child()
    Job.objects.filter(id=child_of(letter)).update(**FORGED[name])
    before = everything()
    with pytest.raises(Conflict) as refusal:
        again(letter)
    assert refusal.value.error_code == "binding_mismatch"
    assert refusal.value.details["binding"] == name
    assert everything() == before


@pytest.mark.parametrize("what", ["recipient", "content", "sender", "event"])
def test_a_dead_letter_that_was_changed_does_not_verify(what: str) -> None:
    letter = dead_child()
    forged = b'{"type":"other"}' if what == "content" else "mallory"
    DeadLetter.objects.filter(id=letter.id).update(**{what: forged})
    with pytest.raises(Conflict) as refusal:
        again(letter)
    assert refusal.value.details["binding"] == "input_text"
    assert Job.objects.get(id=child_of(letter)).state == "failed"


def test_the_child_of_another_recipient_and_the_parent_are_refused() -> None:
    letter, other = dead_child(), dead_child()
    parent = Job.objects.get(id=child_of(other))
    Job.objects.filter(id=parent.id).update(target="agent", request_id="req-parent")
    for forged in (child_of(other), parent.id):
        DeadLetterReplay.objects.filter(id=letter.id).update(original_child_id=forged)
        before = everything()
        with pytest.raises(Conflict) as refusal:
            again(letter)
        assert refusal.value.error_code == "binding_mismatch" and everything() == before


def test_without_a_child_nothing_proves_what_to_queue() -> None:
    letter = dead_child()
    DeadLetterReplay.objects.filter(id=letter.id).update(kind=None, original_child_id=None)
    with pytest.raises(Conflict) as refusal:
        again(letter)
    assert refusal.value.details["binding"] == "original_child_id"
    assert Notification.objects.count() == 1


def test_an_archived_one_is_refused() -> None:
    letter = dead_child()
    dead_letters.archive(dead_letter_id=letter.id, actor=BEN, reason="gone")
    with pytest.raises(Conflict) as refusal:
        again(letter)
    assert refusal.value.error_code == "archived"
    assert Job.objects.get(id=child_of(letter)).state == "failed"


# --- what is lost on the way --------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["_requeue_delivery", "_resolve"])
@pytest.mark.parametrize("what", [LANDED, VANISHED])
def test_a_lost_acknowledgement_is_answered_by_the_same_call(verb: str, what: str) -> None:
    letter = dead_child()
    with at_commit(verb, what) as fault, pytest.raises(CommitOutcomeUnknown):
        again(letter)
    assert fault.fired == 1
    reopened = DatabaseStore()
    told = again(letter, reopened)
    admitted_before = verb == "_resolve" or what == LANDED
    assert told.state == ("already_queued" if admitted_before else "queued")
    assert markers_of(told.child_job_id) == [told.replay_identity]
    assert reread(letter).state == "resolved" and acts_of(letter) == ["replay"]


def test_a_resolve_that_failed_is_repaired_after_the_child_failed_again() -> None:
    letter = dead_child()
    with at_commit("_resolve", VANISHED), pytest.raises(Unavailable):
        again(letter)
    run_child(child_of(letter), error="again")
    told = again(letter)
    assert told.state == "already_queued" and reread(letter).state == "resolved"
    assert Job.objects.get(id=told.child_job_id).state == "failed"
    assert DeadLetter.objects.exclude(id=letter.id).get().parent_id == letter.id


def test_a_store_without_the_capabilities_says_so_and_sends_nothing() -> None:
    letter = dead_child()
    before = everything()
    for missing in (ENSURE_REPLAY, REQUEUE_DELIVERY):
        store = DatabaseStore()
        store.capabilities = DatabaseStore.capabilities - {missing}
        with pytest.raises(Unavailable) as refusal:
            again(letter, store)
        assert refusal.value.details["capability"] == missing
    assert everything() == before


def test_without_0067_nothing_is_replayed_and_the_failure_of_a_child_waits() -> None:
    letter = dead_child()
    _, job = child()
    with without(schema.REPLAY):
        with pytest.raises(Unavailable) as refusal:
            again(letter)
        assert refusal.value.details["migration"] == schema.REPLAY
        run_child(job.id)
    row = Notification.objects.get(child_job_id=job.id)
    assert row.state == "with_executor" and "missing" in row.error_text
    assert DeadLetter.objects.count() == 1
