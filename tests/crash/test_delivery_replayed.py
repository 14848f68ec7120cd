"""Windows of a replay (K3): admitted once, resolved in the end, whatever is killed or withheld."""

import pytest

from tests.support.clerk import LOST
from tests.support.house import WAIT_SECONDS, House
from tests.support.post_room import (
    ADMIT,
    ADMITS,
    EXECUTOR,
    NATIVE,
    RESOLVE,
    PostRoom,
)

pytestmark = pytest.mark.mysql("BAILING_NOTIFICATION_TEST_MYSQL")
KINDS = pytest.mark.parametrize("kind", [NATIVE, EXECUTOR])


def _killed(house: House, letter: str, place: str, when: str) -> None:
    first = house.clerk(stops=[(place, when)])
    told = first.ask("replay", dead_letter_id=letter)
    first.wait_stopped(place, when)
    house.kill(first)
    assert told.result(WAIT_SECONDS) == LOST


def _asked_again(house: House, room: PostRoom, letter: str, expected: str) -> str:
    """Another process is asked, twice; the second time nothing is left to do."""
    second = house.clerk()
    state, name = second.ask("replay", dead_letter_id=letter).result(WAIT_SECONDS)
    assert state == expected
    again = second.ask("replay", dead_letter_id=letter).result(WAIT_SECONDS)
    assert again == ("already_queued", name)
    assert (room.letter(letter)["state"], room.admissions(letter)) == ("resolved", 1)
    return str(name)


def _arrives(room: PostRoom, kind: str, letter: str, name: str) -> None:
    """What was admitted is sent once, to where it failed; the receiver knows its id."""
    if kind == EXECUTOR:
        room.executor_ends(name, delivered=True)
        assert room.attempts(name) == ["refused", "delivered"]
        return
    room.kernel()
    room.is_delivered(name, arrivals=1, unknown=0)
    (call,) = room.arrived()
    assert call.headers["webhook-id"] == room.letter(letter)["notification_id"]


# --- killed ---------------------------------------------------------------------------------------


@KINDS
def test_killed_before_the_commit_of_the_admission_nothing_is_queued(
    house: House, room: PostRoom, kind: str
) -> None:
    letter = room.dead_letter(kind)
    _killed(house, letter, ADMITS[kind], "before")
    assert (room.letter(letter)["state"], room.admissions(letter)) == ("open", 0)
    name = _asked_again(house, room, letter, "queued")
    _arrives(room, kind, letter, name)
    house.verify()


@KINDS
def test_killed_after_the_commit_of_the_admission_it_is_not_admitted_again_and_is_resolved(
    house: House, room: PostRoom, kind: str
) -> None:
    letter = room.dead_letter(kind)
    _killed(house, letter, ADMITS[kind], "after")
    assert (room.letter(letter)["state"], room.admissions(letter)) == ("open", 1)
    name = _asked_again(house, room, letter, "already_queued")
    _arrives(room, kind, letter, name)
    house.verify()


@KINDS
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_the_commit_of_the_resolution_a_repeat_repairs_it(
    house: House, room: PostRoom, kind: str, when: str
) -> None:
    letter = room.dead_letter(kind)
    _killed(house, letter, "_resolve", when)
    assert room.letter(letter)["state"] == ("open" if when == "before" else "resolved")
    name = _asked_again(house, room, letter, "already_queued")
    _arrives(room, kind, letter, name)
    house.verify()


def test_what_was_admitted_is_sent_although_nobody_resolved_it(
    house: House, room: PostRoom
) -> None:
    letter = room.dead_letter()
    _killed(house, letter, ADMITS[NATIVE], "after")
    _arrives(room, NATIVE, letter, f"ntf_{letter}")
    assert room.letter(letter)["state"] == "open"
    _asked_again(house, room, letter, "already_queued")
    assert len(room.arrived()) == 1
    house.verify()


# --- the OK of a COMMIT is withheld ---------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("step", ["admit", "resolve"])
def test_killed_while_an_ok_was_withheld_the_replay_is_found_and_finished(
    house: House, room: PostRoom, kind: str, step: str
) -> None:
    letter = room.dead_letter(kind)
    first = house.clerk(through_proxy=True)
    containing = ADMIT[kind] if step == "admit" else RESOLVE
    rule = house.on_commit(containing=containing, action="hold_ok")
    told = first.ask("replay", dead_letter_id=letter)
    assert rule.wait_fired(WAIT_SECONDS).outcome == "committed"
    house.kill(first)
    assert told.result(WAIT_SECONDS) == LOST
    name = _asked_again(house, room, letter, "already_queued")
    _arrives(room, kind, letter, name)
    house.verify()


@KINDS
@pytest.mark.parametrize("step", ["admit", "resolve"])
@pytest.mark.parametrize("action", ["withhold_ok", "drop_request"])
def test_a_living_process_without_an_acknowledgement_asks_again_and_is_told_the_truth(
    house: House, room: PostRoom, kind: str, step: str, action: str
) -> None:
    letter = room.dead_letter(kind)
    clerk = house.clerk(through_proxy=True)
    containing = ADMIT[kind] if step == "admit" else RESOLVE
    house.on_commit(containing=containing, action=action)
    assert clerk.ask("replay", dead_letter_id=letter).result(WAIT_SECONDS) == (
        "refused",
        "commit_outcome_unknown",
    )
    committed = step == "resolve" or action == "withhold_ok"
    assert room.admissions(letter) == committed
    expected = "already_queued" if committed else "queued"
    state, name = clerk.ask("replay", dead_letter_id=letter).result(WAIT_SECONDS)
    assert state == expected
    assert (room.letter(letter)["state"], room.admissions(letter)) == ("resolved", 1)
    _arrives(room, kind, letter, str(name))
    house.verify()


# --- a resolution that fails, a replay that fails -------------------------------------------------


@KINDS
def test_a_resolution_that_the_database_refuses_leaves_the_admission_and_is_repaired(
    house: House, room: PostRoom, kind: str
) -> None:
    letter = room.dead_letter(kind)
    house.rows(
        "CREATE TRIGGER no_resolve BEFORE UPDATE ON bz_delivery_dlq FOR EACH ROW"
        " IF NEW.state = 'resolved' THEN SIGNAL SQLSTATE '45000'"
        " SET MESSAGE_TEXT = 'refused by the test'; END IF"
    )
    clerk = house.clerk()
    told = clerk.ask("replay", dead_letter_id=letter).result(WAIT_SECONDS)
    house.plan("the resolution is refused", lambda: told[0] == "failed")
    assert (room.letter(letter)["state"], room.admissions(letter)) == ("open", 1)
    house.rows("DROP TRIGGER no_resolve")
    name = _asked_again(house, room, letter, "already_queued")
    _arrives(room, kind, letter, name)
    house.verify()


@KINDS
def test_a_replay_that_fails_again_is_a_new_dead_letter_with_a_parent(
    house: House, room: PostRoom, kind: str
) -> None:
    first = room.dead_letter(kind)
    name = _asked_again(house, room, first, "queued")
    if kind == EXECUTOR:
        room.executor_ends(name, delivered=False)
    else:
        room.answers("status_410")
        room.kernel()
        room.waits(name, "dead")
    second = room.letters(name)[-1]
    assert (second["parent_id"], second["state"]) == (first, "open")
    assert second["id"] != first and room.letter(first)["state"] == "resolved"
    again = house.clerk().ask("replay", dead_letter_id=first).result(WAIT_SECONDS)
    assert again[0] == "already_queued" and room.admissions(first) == 1
    house.verify()


def test_a_child_that_is_not_the_one_that_died_is_refused_by_name_and_nothing_is_queued(
    house: House, room: PostRoom
) -> None:
    letter = room.dead_letter(EXECUTOR)
    child = room.letter(letter)["original_child_id"]
    house.rows("UPDATE bz_jobs SET parent_id = 'job_business' WHERE id = %s", child)
    house.rows("COMMIT")
    told = house.clerk().ask("replay", dead_letter_id=letter).result(WAIT_SECONDS)
    assert told == ("refused", "binding_mismatch")
    (job,) = house.rows("SELECT state, delivery_replay_keys FROM bz_jobs WHERE id = %s", child)
    assert (job["state"], job["delivery_replay_keys"]) == ("failed", None)
    assert (room.letter(letter)["state"], room.admissions(letter)) == ("open", 0)
    house.verify()
