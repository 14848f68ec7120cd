"""Processes that meet an admission of one dead letter, its commit or its end: one is made (F5)."""

from collections import Counter

import pytest

from tests.support.clerk import Clerk
from tests.support.house import WAIT_SECONDS, House
from tests.support.post_room import ADMITS, EXECUTOR, NATIVE, PostRoom
from tests.support.sizes import sized

pytestmark = pytest.mark.mysql("BAILING_NOTIFICATION_TEST_MYSQL")
KINDS = pytest.mark.parametrize("kind", [NATIVE, EXECUTOR])
PROCESSES = sized(6, 16)


def _clerks(house: House, count: int) -> list[Clerk]:
    """That many processes, started at once."""
    every = [house.clerk(ready=False) for _ in range(count)]
    for clerk in every:
        clerk.wait_ready()
    assert len({clerk.pid for clerk in every}) == count
    return every


def _is_admitted_once(room: PostRoom, kind: str, letter: str, name: str) -> None:
    assert (room.letter(letter)["state"], room.admissions(letter)) == ("resolved", 1)
    replays = [row["id"] for row in room.messages() if row["replay_of_id"] == letter]
    assert replays == [name]
    if kind == EXECUTOR:
        room.executor_ends(name, delivered=True)
        assert room.attempts(name) == ["refused", "delivered"]


@KINDS
def test_processes_that_meet_an_admission_before_its_commit_wait_and_find_it(
    house: House, room: PostRoom, kind: str
) -> None:
    letter = room.dead_letter(kind)
    first = house.clerk(stops=[(ADMITS[kind], "before")])
    others = _clerks(house, PROCESSES - 1)
    won = first.ask("replay", dead_letter_id=letter)
    first.wait_stopped(ADMITS[kind], "before")
    asked = [clerk.ask("replay", dead_letter_id=letter) for clerk in others]
    house.wait_for_a_lock()
    assert not any(each.done() for each in asked)
    first.release(ADMITS[kind], "before")
    state, name = won.result(WAIT_SECONDS)
    assert state == "queued"
    assert {each.result(WAIT_SECONDS) for each in asked} == {("already_queued", name)}
    _is_admitted_once(room, kind, letter, name)
    house.verify()


@KINDS
def test_when_the_admission_of_the_first_is_rolled_back_exactly_one_of_the_others_admits(
    house: House, room: PostRoom, kind: str
) -> None:
    letter = room.dead_letter(kind)
    first = house.clerk(stops=[(ADMITS[kind], "before")])
    others = _clerks(house, PROCESSES - 1)
    first.ask("replay", dead_letter_id=letter)
    first.wait_stopped(ADMITS[kind], "before")
    asked = [clerk.ask("replay", dead_letter_id=letter) for clerk in others]
    house.wait_for_a_lock()
    house.kill(first)
    told = Counter(each.result(WAIT_SECONDS) for each in asked)
    assert sorted(told.values()) == [1, PROCESSES - 2], told
    (name,) = {name for _, name in told}
    assert told["queued", name] == 1
    _is_admitted_once(room, kind, letter, name)
    house.verify()
