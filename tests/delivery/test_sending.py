"""What an attempt came to, and all that follows, in one transaction (F2, F3, F6)."""

from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from kernel import clock, schema
from kernel.conf import conf, override
from kernel.delivery import destinations
from kernel.delivery.claims import Claimed
from kernel.delivery.recovery import reclaim_page
from kernel.errors import CommitOutcomeUnknown, LostRace, Unavailable
from kernel.models import DeadLetter, DeadLetterReplay, Destination, Notification
from tests.delivery import post
from tests.support.commits import LANDED, at_commit

pytestmark = pytest.mark.usefixtures("kernel_db")

ODD = "👨‍💻 né \x00 \ud83d end"


def claimed(**fields: Any) -> Claimed:
    post.destination(**fields)
    post.queued()
    return post.take_one()


def test_a_delivery_is_the_end() -> None:
    one = claimed()
    assert post.delivered(one).state == "delivered"
    row = post.reread(one.id)
    assert (row.state, row.attempts, row.error_text) == ("delivered", 1, "")
    assert row.finished_at is not None and row.lease_expires_at is None
    (attempt,) = post.attempts_of(one.id)
    assert (attempt.outcome, attempt.http_status, attempt.number) == ("delivered", 200, 1)
    assert attempt.started_at <= attempt.ended_at


def test_a_failure_is_due_again_and_the_table_says_when() -> None:
    one = claimed()
    recorded = post.failed(one)
    row = post.reread(one.id)
    (attempt,) = post.attempts_of(one.id)
    assert row.state == "queued" and row.due_at == recorded.due_at == attempt.next_due_at
    wait = (row.due_at - attempt.ended_at).total_seconds()
    assert 4 <= wait <= 6
    assert post.take() == [], "not due yet"


def test_what_the_receiver_asked_for_is_in_the_table() -> None:
    one = claimed()
    post.failed(one, http_status=429, retry_after_seconds=600)
    (attempt,) = post.attempts_of(one.id)
    assert attempt.next_due_at is not None
    assert 600 <= (attempt.next_due_at - attempt.ended_at).total_seconds() <= 601


@pytest.mark.parametrize("outcome", ["refused", "not_sent", "unknown"])
def test_every_failed_attempt_is_a_row_and_the_last_makes_a_dead_letter(outcome: str) -> None:
    post.destination(events=["message"])
    (one,) = post.queued()
    with override(destination_failures_count_max=1000):
        letter = post.fail_until_dead(one, outcome=outcome)
    row = post.reread(one)
    rows = post.attempts_of(one)
    assert row.state == "dead" and row.finished_at is not None
    assert [each.number for each in rows] == list(range(1, conf.notification_attempts_max + 1))
    assert {each.outcome for each in rows} == {outcome}
    assert rows[-1].next_due_at is None
    assert row.unknown_attempts == (len(rows) if outcome == "unknown" else 0)
    assert letter.unknown_attempts == row.unknown_attempts
    assert (letter.recipient, bytes(letter.content)) == (row.recipient, bytes(row.content))
    assert DeadLetterReplay.objects.get(id=letter.id).kind == "native"


def test_gone_is_final_at_once() -> None:
    one = claimed()
    recorded = post.failed(one, http_status=410, is_final=True)
    assert recorded.state == "dead"
    assert DeadLetter.objects.get().id == recorded.dead_letter_id
    assert len(post.attempts_of(one.id)) == 1


def test_recording_again_after_a_lost_acknowledgement_changes_nothing() -> None:
    one = claimed()
    with at_commit("_record", LANDED) as fault, pytest.raises(CommitOutcomeUnknown):
        post.failed(one)
    assert fault.fired == 1
    before = post.reread(one.id)
    again = post.failed(one)
    assert again.due_at == before.due_at
    assert len(post.attempts_of(one.id)) == 1 == post.reread(one.id).attempts


def test_a_sender_that_lost_its_lease_writes_nothing() -> None:
    one = claimed()
    post.let_lease_end(one.id)
    assert reclaim_page(limit=10).settled == 1
    post.due_now(one.id)
    second = post.take_one(owner="snd_b")
    before = Notification.objects.values().get(id=one.id)
    for act in (post.delivered, post.failed):
        with pytest.raises(LostRace) as refusal:
            act(one)
        assert refusal.value.error_code == "lost_lease"
    assert Notification.objects.values().get(id=one.id) == before
    assert post.delivered(second).state == "delivered"
    assert [each.outcome for each in post.attempts_of(one.id)] == ["unknown", "delivered"]


def test_a_lost_sender_leaves_an_unknown_attempt_and_the_next_may_be_a_duplicate() -> None:
    one = claimed()
    assert reclaim_page(limit=10).settled == 0, "its lease runs"
    post.let_lease_end(one.id)
    assert reclaim_page(limit=10).settled == 1
    row = post.reread(one.id)
    assert (row.state, row.attempts, row.unknown_attempts, row.owner) == ("queued", 1, 1, "")
    (attempt,) = post.attempts_of(one.id)
    assert attempt.outcome == "unknown" and attempt.next_due_at == row.due_at
    assert reclaim_page(limit=10).settled == 0


def test_a_message_that_loses_its_senders_ends_as_a_dead_letter() -> None:
    post.destination()
    (one,) = post.queued()
    with override(notification_attempts_max=3, destination_failures_count_max=1000):
        for _ in range(3):
            post.due_now(one)
            post.take_one()
            post.let_lease_end(one)
            assert reclaim_page(limit=10).settled == 1
    assert post.reread(one).state == "dead"
    assert DeadLetter.objects.get().unknown_attempts == 3


# --- words of receivers ------------------------------------------------------------------------


@pytest.mark.parametrize("text", [ODD, "x" * 2**20, "😀" * 300_000, "\0 ÿ 😀 ã", ""])
def test_no_words_of_a_receiver_keep_an_outcome_from_being_recorded(text: str) -> None:
    one = claimed()
    post.failed(one, evidence=text)
    (attempt,) = post.attempts_of(one.id)
    raw = attempt.evidence_text.encode()
    assert len(raw) <= conf.evidence_bytes_max + 60
    if len(text) > 5000:
        assert f"{len(text.encode())} bytes in all" in attempt.evidence_text
        assert attempt.evidence_text.endswith(text[-1])
    assert post.reread(one.id).state == "queued"
    found = Notification.objects.filter(error_text__contains=attempt.evidence_text[:8])
    assert [row.id for row in found] == [one.id], "it can be searched for"


# --- 0067 --------------------------------------------------------------------------------------


@contextmanager
def without(name: str):
    real = schema.require

    def require(wanted: str) -> None:
        if wanted == name:
            raise Unavailable(f"The database lacks the migration {name}.", migration=name)
        real(wanted)

    with mock.patch.object(schema, "require", require):
        yield


def test_without_0067_the_final_failure_waits_in_the_outbox_and_says_why() -> None:
    one = claimed()
    with without(schema.REPLAY):
        assert post.failed(one, is_final=True).state == "queued"
    row = post.reread(one.id)
    assert row.state == "queued" and schema.REPLAY in row.error_text
    assert not DeadLetter.objects.exists()
    post.due_now(one.id)
    assert post.failed(post.take_one(), is_final=True).state == "dead"
    assert DeadLetter.objects.count() == 1


# --- circuits ----------------------------------------------------------------------------------


def test_failures_in_a_row_close_a_destination_and_its_dead_letters_say_so() -> None:
    post.destination("other")
    post.destination()
    queued = post.queued(4)
    with override(destination_failures_count_max=3, destination_slots_count_max=4):
        for each in post.take()[:3]:
            post.failed(each)
        row = Destination.objects.get(id="ops")
        assert row.failures == 3 and row.closed_until_at is not None
        for one in queued:
            post.due_now(one)
        assert post.take() == []
        post.let_reopen()
        with override(notification_attempts_max=2):
            assert post.failed(post.take_one()).state == "dead"
    assert DeadLetter.objects.get().error_text.startswith("circuit_open: ")


def test_a_delivery_forgets_the_failures() -> None:
    post.destination()
    post.queued(3)
    first, second, third = post.take()
    post.failed(first)
    post.failed(second)
    assert Destination.objects.get().failures == 2
    post.delivered(third)
    assert Destination.objects.get().failures == 0


def test_a_message_on_its_way_does_not_open_what_a_person_closed() -> None:
    one = claimed()
    destinations.close_destination(
        destination_id="ops", actor=post.ANN, reason="maintenance", seconds=600
    )
    until = Destination.objects.get().closed_until_at
    post.delivered(one)
    assert Destination.objects.get().closed_until_at == until


# --- telling about dead letters ------------------------------------------------------------------


def test_a_dead_letter_is_told_to_who_asked() -> None:
    post.destination(events=["dead_letter"])
    post.destination("broken")
    (one,) = post.queued(to="broken")
    letter = post.failed(post.take_one(), is_final=True).dead_letter_id
    (told,) = Notification.objects.exclude(id=one)
    assert (told.event, told.kind, told.destination_id) == ("dead_letter.created", "alert", "ops")
    assert post.data_of(told.id)["dead_letter_id"] == letter


def test_a_failing_alert_never_alerts() -> None:
    post.destination(events=["dead_letter"])
    post.rule()
    post.destination("broken")
    post.queued(to="broken")
    post.failed(post.take_one(), is_final=True)
    assert Notification.objects.count() == 3, "the message, the notice and the rule's alert"
    while taken := post.take():
        for each in taken:
            post.failed(each, is_final=True)
    assert Notification.objects.count() == 3
    assert DeadLetter.objects.count() == 3


def test_a_thousand_exhaustions_at_one_destination_are_one_alert() -> None:
    post.destination()
    post.rule()
    post.destination("broken")
    with override(destination_failures_count_max=1000, destination_slots_count_max=100):
        for _ in range(4):
            post.queued(25, to="broken")
            for each in post.take(100):
                if each.destination_id == "broken":
                    post.failed(each, is_final=True)
    assert Notification.objects.filter(kind="alert").count() == 1
    assert DeadLetter.objects.filter(destination_id="broken").count() == 100


def test_leases_of_sent_messages_do_not_outlive_their_attempt() -> None:
    """The lease is longer than an attempt may take, so that none is sent twice at once."""
    assert conf.notification_lease_seconds > conf.notification_deadline_seconds
    one = claimed()
    lease = post.reread(one.id).lease_expires_at
    assert lease is not None and lease > clock.db_now() + timedelta(
        seconds=conf.notification_deadline_seconds
    )
