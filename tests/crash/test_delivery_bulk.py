"""A process that replays many is killed: another goes on, each is sent once (F9, K3)."""

import hashlib

import psutil
import pytest

from kernel.invariants import check_all
from kernel.models import Operation
from kernel.operations import Filter, apply, plan_replay
from kernel.operations.freezing import CHUNK_ROWS
from tests.support.house import WAIT_SECONDS, House
from tests.support.kernel_process import KernelProcess
from tests.support.post_room import HOOKS, OLGA, PostRoom
from tests.support.wait import wait_until

pytestmark = pytest.mark.mysql("BAILING_NOTIFICATION_TEST_MYSQL")

COUNT, PAGE = 8, 3
PAGES = {"BAILING_OPERATION_PAGE_ROWS": str(PAGE)}
MANY = 1200  # two chunks of a set that is frozen
FEWER = {"BAILING_OPERATION_PAGE_ROWS": "60"}


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


def test_many_are_frozen_and_replayed_through_three_kills_each_once(
    house: House, room: PostRoom
) -> None:
    """Killed while the set is frozen, and twice while it is worked off, wherever it stands then."""
    room.dead_letters(MANY)
    with house.office():
        row = plan_replay(
            filter=Filter(destination_id=HOOKS), actor=OLGA, reason="back", rate_per_second=100_000
        )
    assert (row.state, row.item_count) == ("planning", 0)
    first = house.kernel(stops=[("_freeze", "after")], limits=FEWER)
    first.wait_stopped("_freeze", "after")
    house.kill(first)
    assert room.operation(row.id)["item_count"] == CHUNK_ROWS

    second = _another(house, room)
    _until(room, row.id, "state", "planned")
    seen = room.operation(row.id)
    assert (seen["item_count"], seen["digest"]) == (MANY, _digest(house, row.id))
    base = _memory_mib(second)
    with house.office():
        apply(operation_id=row.id, actor=OLGA, seen_digest=seen["digest"])
    _killed_in_the_middle(house, room, second, row.id, at=MANY // 4)
    third = _another(house, room)
    _killed_in_the_middle(house, room, third, row.id, at=MANY // 2)
    last = _another(house, room)
    _until(room, row.id, "state", "done")

    found = room.operation(row.id)
    assert (found["done_count"], found["skipped_count"], found["failed_count"]) == (MANY, 0, 0)
    assert (found["interruptions"], found["digest"]) == (3, _digest(house, row.id))
    assert _memory_mib(last) - base < 100
    (admitted,) = house.rows(
        "SELECT COUNT(*) AS n, COUNT(DISTINCT replay_of_id) AS letters FROM bz_notifications"
        " WHERE replay_of_id <> ''"
    )
    assert (admitted["n"], admitted["letters"]) == (MANY, MANY)
    with house.office():  # each is audited once, and resolved
        assert [str(report) for report in check_all() if not report.holds] == []
    house.verified = True


def _another(house: House, room: PostRoom) -> KernelProcess:
    """A process that goes on, after the lease of the killed one."""
    room.let_leases_end()
    return house.kernel(limits=FEWER)


def _until(room: PostRoom, operation_id: str, name: str, value: object) -> None:
    wait_until(
        lambda: room.operation(operation_id)[name] == value,
        WAIT_SECONDS,
        about=f"the {name} of the operation is {value}",
        look_every=0.05,
    )


def _killed_in_the_middle(
    house: House, room: PostRoom, process: KernelProcess, operation_id: str, *, at: int
) -> None:
    """SIGKILL at whatever moment it is when so many are counted."""
    wait_until(
        lambda: room.operation(operation_id)["done_count"] >= at,
        WAIT_SECONDS,
        about=f"{at} are done",
        look_every=0.01,
    )
    house.kill(process)
    assert room.operation(operation_id)["state"] == "running"


def _digest(house: House, operation_id: str) -> str:
    items = house.rows(
        "SELECT object_id FROM bz_operation_items WHERE operation_id = %s ORDER BY sequence",
        operation_id,
    )
    return hashlib.sha256("".join(f"{one['object_id']}\n" for one in items).encode()).hexdigest()


def _memory_mib(process: KernelProcess) -> float:
    return psutil.Process(process.pid).memory_info().rss / 2**20
