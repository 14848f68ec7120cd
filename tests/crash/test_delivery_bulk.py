"""A process that replays many is killed: another goes on, each is sent once (F9, K3)."""

import pytest

from kernel.models import Operation
from kernel.operations import Filter, apply, plan_replay
from tests.support.house import WAIT_SECONDS, House
from tests.support.post_room import HOOKS, OLGA, PostRoom
from tests.support.wait import wait_until

pytestmark = pytest.mark.mysql("BAILING_NOTIFICATION_TEST_MYSQL")

COUNT, PAGE = 8, 3
PAGES = {"BAILING_OPERATION_PAGE_ROWS": str(PAGE)}


def _running(house: House) -> str:
    """An applied plan over every dead letter of the receiver; its id."""
    with house.office():
        row = plan_replay(
            filter=Filter(destination_id=HOOKS), actor=OLGA, reason="it is back", rate_per_second=99
        )
        assert row.item_count == COUNT
        applied: Operation = apply(operation_id=row.id, actor=OLGA, seen_digest=row.digest)
    return applied.id


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_killed_around_the_record_of_a_page_is_followed_by_another(
    house: House, room: PostRoom, when: str
) -> None:
    letters = [room.dead_letter() for _ in range(COUNT)]
    operation = _running(house)
    first = house.kernel(stops=[("items", when, 2)], limits=PAGES)
    first.wait_stopped("items", when)
    house.kill(first)
    row = room.operation(operation)
    assert row["done_count"] == (PAGE if when == "before" else 2 * PAGE)
    assert sum(map(room.admissions, letters)) == 2 * PAGE

    room.let_leases_end()
    room.kernel(limits=PAGES)
    wait_until(
        lambda: room.operation(operation)["state"] == "done",
        WAIT_SECONDS,
        about="another process has ended the operation",
        look_every=0.05,
    )
    row = room.operation(operation)
    assert (row["done_count"], row["skipped_count"], row["failed_count"]) == (COUNT, 0, 0)
    assert row["interruptions"] == 1
    assert {room.admissions(letter) for letter in letters} == {1}
    assert {room.letter(letter)["state"] for letter in letters} == {"resolved"}
    for letter in letters:
        room.waits(f"ntf_{letter}", "delivered")
    arrived = [call.headers["webhook-id"] for call in room.arrived()]
    assert len(arrived) == len(set(arrived)) == COUNT
    house.verify()
