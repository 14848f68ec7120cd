"""Windows from publishing to the dead letter (K3): nothing lost, duplicates only where shown."""

import pytest

from tests.support.clerk import LOST
from tests.support.house import WAIT_SECONDS, House
from tests.support.post_room import NO_RECOVERY, OUTCOME, PostRoom

pytestmark = pytest.mark.mysql("BAILING_NOTIFICATION_TEST_MYSQL")

ONE_ATTEMPT = {"BAILING_NOTIFICATION_ATTEMPTS_MAX": "1"}


def _another_goes_on(room: PostRoom, name: str, *, arrivals: int, unknown: int) -> None:
    """The lease of the dead sender ends; another kernel delivers, by maintenance alone."""
    assert room.message(name)["state"] == "sending"
    room.let_leases_end()
    room.kernel()
    room.is_delivered(name, arrivals=arrivals, unknown=unknown)


# --- publish --------------------------------------------------------------------------------------


def test_killed_before_the_commit_of_publishing_nothing_exists_and_the_repeat_publishes(
    house: House, room: PostRoom
) -> None:
    first = house.clerk(stops=[("publish", "before")])
    told = first.ask("publish", **room.order())
    first.wait_stopped("publish", "before")
    house.kill(first)
    assert told.result(WAIT_SECONDS) == LOST
    assert room.messages() == []
    room.kernel()
    room.is_delivered(room.publish(), arrivals=1, unknown=0)
    house.verify()


def test_killed_after_the_commit_of_publishing_the_message_is_sent_by_another(
    house: House, room: PostRoom
) -> None:
    first = house.clerk(stops=[("publish", "after")])
    first.ask("publish", **room.order())
    first.wait_stopped("publish", "after")
    house.kill(first)
    (message,) = room.messages()
    assert message["state"] == "queued"
    room.kernel()
    room.is_delivered(message["id"], arrivals=1, unknown=0)
    house.verify()


# --- claim ----------------------------------------------------------------------------------------


def test_killed_before_the_commit_of_the_claim_nothing_was_taken(
    house: House, room: PostRoom
) -> None:
    name = room.killed_sending("claim_message", "before")
    assert (room.message(name)["state"], room.arrived()) == ("queued", [])
    room.kernel()
    room.is_delivered(name, arrivals=1, unknown=0)
    house.verify()


def test_killed_after_the_commit_of_the_claim_its_attempt_counts_as_unknown(
    house: House, room: PostRoom
) -> None:
    """Nobody can tell a sender that died before the first byte from one that died after it."""
    name = room.killed_sending("claim_message", "after")
    assert room.arrived() == []
    _another_goes_on(room, name, arrivals=1, unknown=1)
    assert room.attempts(name) == ["unknown", "delivered"]
    house.verify()


# --- send -----------------------------------------------------------------------------------------


def test_killed_while_the_receiver_had_not_answered_the_second_arrival_is_shown(
    house: House, room: PostRoom
) -> None:
    room.answers("hang")
    first = room.kernel(limits=NO_RECOVERY)
    name = room.publish()
    room.reached()
    house.kill(first)
    _another_goes_on(room, name, arrivals=2, unknown=1)
    assert {call.headers["webhook-id"] for call in room.arrived()} == {name}
    house.verify()


def test_killed_after_the_answer_and_before_the_record_the_second_arrival_is_shown(
    house: House, room: PostRoom
) -> None:
    name = room.killed_sending("outcome", "before")
    assert len(room.arrived()) == 1
    _another_goes_on(room, name, arrivals=2, unknown=1)
    assert room.attempts(name) == ["unknown", "delivered"]
    house.verify()


def test_a_receiver_that_closes_without_an_answer_gets_it_again_and_it_is_shown(
    house: House, room: PostRoom
) -> None:
    room.answers("rst")
    room.kernel()
    name = room.publish()
    room.is_delivered(name, arrivals=2, unknown=1)
    house.verify()


def test_a_receiver_that_refuses_gets_it_again_and_no_duplicate_is_shown(
    house: House, room: PostRoom
) -> None:
    room.answers("status_503")
    room.kernel()
    name = room.publish()
    room.is_delivered(name, arrivals=2, unknown=0)
    assert room.attempts(name) == ["refused", "delivered"]
    house.verify()


# --- record ---------------------------------------------------------------------------------------


def test_killed_after_the_record_it_is_delivered_and_never_sent_again(
    house: House, room: PostRoom
) -> None:
    name = room.killed_sending("outcome", "after")
    assert room.message(name)["state"] == "delivered"
    room.let_leases_end()
    room.kernel()
    later = room.publish(number=2)
    room.is_delivered(later, arrivals=2, unknown=0)
    room.is_delivered(name, arrivals=2, unknown=0)
    house.verify()


@pytest.mark.parametrize("action", ["withhold_ok", "drop_request"])
def test_a_living_sender_whose_record_was_not_acknowledged_records_once(
    house: House, room: PostRoom, action: str
) -> None:
    room.kernel(through_proxy=True)
    house.on_commit(containing=OUTCOME, action=action)
    name = room.publish()
    room.is_delivered(name, arrivals=1, unknown=0)
    assert room.attempts(name) == ["delivered"]
    house.verify()


def test_killed_while_the_ok_of_the_record_was_withheld_it_is_delivered(
    house: House, room: PostRoom
) -> None:
    first = room.kernel(through_proxy=True, limits=NO_RECOVERY)
    rule = house.on_commit(containing=OUTCOME, action="hold_ok")
    name = room.publish()
    assert rule.wait_fired(WAIT_SECONDS).outcome == "committed"
    house.kill(first)
    room.kernel()
    room.is_delivered(name, arrivals=1, unknown=0)
    house.verify()


# --- recovery -------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_the_commit_of_the_recovery_the_lost_attempt_is_counted_once(
    house: House, room: PostRoom, when: str
) -> None:
    name = room.killed_sending("outcome", "before")
    room.let_leases_end()
    second = room.kernel(stops=[("_reclaim", when)])
    second.wait_stopped("_reclaim", when)
    house.kill(second)
    assert room.attempts(name) == ([] if when == "before" else ["unknown"])
    room.kernel()
    room.is_delivered(name, arrivals=2, unknown=1)
    house.verify()


def test_a_sender_that_outlives_its_lease_changes_nothing_any_more(
    house: House, room: PostRoom
) -> None:
    room.answers("hold")
    first = room.kernel(limits=NO_RECOVERY)
    name = room.publish()
    room.reached()
    room.let_leases_end()
    room.kernel()
    room.is_delivered(name, arrivals=2, unknown=1)
    room.receiver.release()
    first.terminate()  # it has its answer, and closes when that is dealt with
    assert room.attempts(name) == ["unknown", "delivered"]
    house.verify()


# --- dead letter ----------------------------------------------------------------------------------


def test_killed_before_the_commit_of_the_dead_letter_there_is_none_and_another_writes_it(
    house: House, room: PostRoom
) -> None:
    room.answers("status_410", times=2)
    name = room.killed_sending("death", "before")
    assert (room.message(name)["state"], room.letters(name)) == ("sending", [])
    room.let_leases_end()
    room.kernel()
    room.waits(name, "dead")
    (letter,) = room.letters(name)
    assert (letter["state"], letter["unknown_attempts"]) == ("open", 1)
    assert room.attempts(name) == ["unknown", "refused"]
    house.verify()


def test_killed_after_the_commit_of_the_dead_letter_there_is_exactly_one(
    house: House, room: PostRoom
) -> None:
    room.answers("status_410")
    name = room.killed_sending("death", "after")
    assert len(room.letters(name)) == 1
    room.let_leases_end()
    room.kernel()
    room.is_delivered(room.publish(number=2), arrivals=2, unknown=0)
    (letter,) = room.letters(name)
    assert bytes(letter["content"]) == bytes(room.message(name)["content"])
    house.verify()


def test_the_last_attempt_of_a_lost_sender_ends_in_a_dead_letter_that_shows_it(
    house: House, room: PostRoom
) -> None:
    name = room.killed_sending("outcome", "before", **ONE_ATTEMPT)
    room.let_leases_end()
    room.kernel(limits=ONE_ATTEMPT)
    room.waits(name, "dead")
    (letter,) = room.letters(name)
    assert (letter["unknown_attempts"], len(room.arrived())) == (1, 1)
    house.verify()
