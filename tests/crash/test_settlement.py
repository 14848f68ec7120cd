"""Windows around the settlement commit (K1): each result is charged once, whoever does it."""

import pytest

from tests.support import lives
from tests.support.house import SETTLEMENT, House

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")


def _is_charged_once(house: House, op: str) -> None:
    second = house.kernel()
    house.wait_states(op, "complete", "settled")
    house.wait_maintained(second)
    assert house.client(second).post(op).replayed
    assert [row["amount_nano"] for row in house.ledger(op)] == [lives.CHARGE_NANO]
    assert house.account()["consumed_nano"] == lives.CHARGE_NANO
    assert house.account()["held_nano"] == 0
    assert house.provider.count(op) == 1


def test_killed_before_the_settlement_commit_maintenance_charges_what_was_left(
    house: House,
) -> None:
    op = house.operation()
    house.killed_at("settle", "before", op)
    assert house.states(op) == ("complete", "pending", "")
    assert house.ledger(op) == []
    _is_charged_once(house, op)
    house.verify()


def test_killed_after_the_settlement_commit_nothing_is_charged_again(house: House) -> None:
    op = house.operation()
    house.killed_at("settle", "after", op)
    assert house.states(op) == ("complete", "settled", "")
    _is_charged_once(house, op)
    house.verify()


def test_killed_while_the_ok_of_the_settlement_was_withheld_nothing_is_charged_again(
    house: House,
) -> None:
    op = house.operation()
    house.killed_awaiting_ok(SETTLEMENT, op)
    assert house.states(op) == ("complete", "settled", "")
    _is_charged_once(house, op)
    house.verify()


def test_a_living_process_whose_settlement_was_not_acknowledged_charges_once(house: House) -> None:
    op = house.operation()
    first = house.kernel(through_proxy=True)
    house.on_commit(containing=SETTLEMENT, action="withhold_ok")
    assert house.client(first).post(op).status == 200
    house.wait_states(op, "complete", "settled")
    first.stop()
    _is_charged_once(house, op)
    house.verify()


def test_killed_in_the_middle_of_a_page_of_fifty_each_of_them_is_charged_once(
    house: House,
) -> None:
    with house.office():
        lives.complete_many([f"op-{number}" for number in range(50)])
    first = house.kernel(stops=[("settle", "before")])
    first.wait_stopped("settle", "before")
    house.kill(first)
    assert house.account()["consumed_nano"] == 0
    second = house.kernel()
    house.wait_states("op-49", "complete", "settled")
    house.wait_maintained(second)
    assert house.account()["consumed_nano"] == 50 * lives.CHARGE_NANO
    assert house.account()["held_nano"] == 0
    (count,) = house.rows("SELECT COUNT(DISTINCT request_id) AS n FROM bz_usage_ledger")
    assert count["n"] == 50
    house.verify()


def test_sigterm_with_thirty_answers_just_given_leaves_each_of_them_charged_once(
    house: House,
) -> None:
    """G22: what the ended process had not settled, the next one does."""
    operations = [house.operation(f"op{number}") for number in range(30)]
    first = house.kernel()
    client = house.client(first)
    answers = [posted.result() for posted in [client.post_later(each) for each in operations]]
    first.terminate()
    assert {answer.status for answer in answers} == {200}
    house.kernel()
    for operation in operations:
        house.wait_states(operation, "complete", "settled")
    assert house.account()["consumed_nano"] == 30 * lives.CHARGE_NANO
    assert house.account()["held_nano"] == 0
    house.verify()


def test_a_result_without_metering_waits_and_is_never_charged_as_zero(
    house: House,
) -> None:
    op = house.operation()
    house.provider_does("answer", op, usage="omit")
    house.killed_at("save_results", "after", op)
    second = house.kernel()
    house.wait_maintained(second)
    assert house.states(op) == ("complete", "pending", "no_usage")
    assert house.ledger(op) == []
    assert house.account()["held_nano"] > 0
    assert house.client(second).post(op).replayed
    house.verify()
