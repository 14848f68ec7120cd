"""The replacement is killed as well, in the middle of its recovery; a third process finishes."""

import pytest

from tests.support import lives
from tests.support.desk import Desk
from tests.support.house import House

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")
AROUND = pytest.mark.parametrize("when", ["before", "after"])


@AROUND
def test_a_replacement_killed_while_it_ends_lost_leases_is_followed_by_a_third(
    house: House, when: str
) -> None:
    op = house.operation()
    house.killed_at("save_results", "before", op)
    second = house.kernel(stops=[("expire_leases", when)])
    second.wait_stopped("expire_leases", when)
    house.kill(second)
    assert house.states(op)[0] == ("dispatched" if when == "before" else "unknown")

    third = house.kernel()
    house.wait_states(op, "unknown", "pending", "no_usage")
    answer = house.client(third).post(op)
    assert (answer.status, answer.code) == (502, "outcome_unknown")
    assert house.provider.count(op) == 1
    house.verify()


@AROUND
def test_a_replacement_killed_while_it_settles_is_followed_by_a_third_that_charges_once(
    house: House, when: str
) -> None:
    op = house.operation()
    house.killed_at("save_results", "after", op)
    second = house.kernel(stops=[("settle", when)])
    second.wait_stopped("settle", when)
    house.kill(second)
    assert len(house.ledger(op)) == (0 if when == "before" else 1)

    third = house.kernel()
    house.wait_states(op, "complete", "settled")
    house.wait_maintained(third)
    assert [row["amount_nano"] for row in house.ledger(op)] == [lives.CHARGE_NANO]
    assert house.client(third).post(op).replayed
    house.verify()


@AROUND
def test_a_replacement_killed_while_it_carries_a_decision_through_is_followed_by_a_third(
    house: House, desk: Desk, when: str
) -> None:
    asked, _lost = desk.killed_at("_decide", "after")
    second = desk.kernel(stops=[("_admit_once", when)])
    second.wait_stopped("_admit_once", when)
    house.kill(second)
    assert len(desk.markers(asked)) == (0 if when == "before" else 1)

    desk.kernel()
    desk.ends(asked, "done", calls=1)
    house.verify()
