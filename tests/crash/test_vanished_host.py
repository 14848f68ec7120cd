"""A host that vanishes with a transaction open: its locks stay until the server ends that."""

import time

import pytest

from tests.support import lives
from tests.support.house import SETTLEMENT, WAIT_SECONDS, House

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")

# MariaDB ends a silent transaction, MySQL only a silent connection.
HELD_SECONDS_MAX = 15
LIMITS = {"BAILING_IDLE_TRANSACTION_SECONDS": "5", "BAILING_IDLE_CONNECTION_SECONDS": "10"}


def test_a_host_that_vanished_inside_a_settlement_holds_others_up_only_for_a_while(
    house: House,
) -> None:
    op, other = house.operation("op"), house.operation("other")
    first = house.kernel(through_proxy=True, limits=LIMITS)
    rule = house.on_commit(containing=SETTLEMENT, action="half_open_unsent")
    assert house.client(first).post(op).status == 200
    rule.wait_fired(WAIT_SECONDS)
    house.kill(first)
    latest = time.monotonic() + HELD_SECONDS_MAX

    client = house.client(house.kernel(limits=LIMITS))
    while (answer := client.post(other)).status != 200:
        assert answer.code == "unavailable" and answer.may_be_repeated
        assert time.monotonic() < latest, "the account is held for longer than it may be"
    house.wait_states(op, "complete", "settled")
    house.wait_states(other, "complete", "settled")
    assert house.account()["consumed_nano"] == 2 * lives.CHARGE_NANO
    assert house.account()["held_nano"] == 0
    house.verify()
