"""Windows around the admission commit (K1): nothing exists, or a request that was not sent."""

import contextlib

import pytest

from tests.support import lives
from tests.support.client import Answer
from tests.support.house import ADMISSION, House

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")


def test_killed_before_the_admission_commit_nothing_exists_and_the_repeat_generates_once(
    house: House,
) -> None:
    op = house.operation()
    assert house.killed_at("admit", "before", op).lost
    assert house.request(op) == {}
    assert house.rows("SELECT 1 FROM bz_usage_bodies") == []
    assert house.provider.count(op) == 0

    client = house.client(house.kernel())
    assert client.post(op).status == 200
    repeat = client.post(op)
    assert (repeat.status, repeat.replayed) == (200, True)
    assert house.provider.count(op) == 1
    house.wait_states(op, "complete", "settled")
    house.verify()


def _is_not_sent(answer: Answer) -> bool:
    return (answer.status, answer.code) == (409, "not_dispatched") and not answer.may_be_repeated


def test_killed_after_the_admission_commit_the_request_waits_and_can_be_cancelled(
    house: House,
) -> None:
    op = house.operation()
    assert house.killed_at("admit", "after", op).lost
    assert house.states(op) == ("admitted", "open", "")
    assert house.account()["held_nano"] > 0

    second = house.kernel()
    client = house.client(second)
    house.wait_maintained(second)
    assert _is_not_sent(client.post(op))
    assert house.states(op) == ("admitted", "open", "")
    assert client.act(op, "cancel").json["result_state"] == "cancelled"
    assert (client.post(op).status, client.post(op).code) == (409, "cancelled")
    assert client.act(op, "dispatch").code == "cancelled"
    assert house.states(op) == ("cancelled", "not_charged", "cancelled")
    assert house.account()["held_nano"] == 0
    assert house.provider.count(op) == 0
    house.verify()


def test_killed_after_the_admission_commit_the_request_can_be_dispatched_as_what_it_was(
    house: House,
) -> None:
    op = house.operation()
    house.killed_at("admit", "after", op)
    second = house.kernel()
    client = house.client(second)
    house.wait_maintained(second)
    assert house.provider.count(op) == 0
    assert client.act(op, "dispatch").json["result_state"] == "complete"
    assert client.post(op).replayed
    assert house.provider.count(op) == 1
    house.wait_states(op, "complete", "settled")
    house.verify()


def test_the_commit_of_a_dead_process_lands_late_and_the_replacement_finds_it(
    house: House,
) -> None:
    op = house.operation()
    first = house.kernel(through_proxy=True)
    rule = house.on_commit(containing=ADMISSION, action="hold_request")
    posted = house.client(first).post_later(op)
    rule.wait_fired()
    second = house.client(house.kernel())
    house.kill(first)
    assert posted.result().lost
    assert house.request(op) == {}

    repeat = second.post_later(op)
    house.wait_for_a_lock("INSERT INTO bz_usage_requests")
    rule.release()
    assert rule.wait_outcome() == "committed"
    assert _is_not_sent(repeat.result())
    assert house.provider.count(op) == 0
    assert second.act(op, "dispatch").json["result_state"] == "complete"
    assert house.provider.count(op) == 1
    house.wait_states(op, "complete", "settled")
    house.verify()


def test_the_commit_of_a_dead_process_never_lands_and_the_replacement_goes_on(
    house: House,
) -> None:
    op = house.operation()
    first = house.kernel(through_proxy=True)
    rule = house.on_commit(containing=ADMISSION, action="hold_request")
    posted = house.client(first).post_later(op)
    rule.wait_fired()
    second = house.client(house.kernel())
    house.kill(first)
    assert posted.result().lost

    repeat = second.post_later(op)
    house.wait_for_a_lock("INSERT INTO bz_usage_requests")
    rule.drop()
    assert (repeat.result().status, repeat.result().replayed) == (200, False)
    assert house.provider.count(op) == 1
    house.wait_states(op, "complete", "settled")
    house.verify()


def test_a_living_process_whose_admission_was_not_acknowledged_knows_its_row(
    house: House,
) -> None:
    op = house.operation()
    client = house.client(house.kernel(through_proxy=True))
    house.on_commit(containing=ADMISSION, action="withhold_ok")
    answer = client.post(op)
    assert (answer.status, answer.replayed) == (200, False)
    assert client.post(op).replayed
    house.wait_states(op, "complete", "settled")
    house.verify()


def test_a_living_process_whose_admission_never_arrived_admits_again(
    house: House,
) -> None:
    op = house.operation()
    client = house.client(house.kernel(through_proxy=True))
    house.on_commit(containing=ADMISSION, action="drop_request")
    answer = client.post(op)
    assert (answer.status, answer.replayed) == (200, False)
    assert client.post(op).replayed
    house.wait_states(op, "complete", "settled")
    house.verify()


def test_ids_that_differ_by_case_are_two_requests_and_stay_two(house: House) -> None:
    lower, upper = house.operation("order-a"), house.operation("order-A")
    house.killed_at("answer", "before", lower)
    client = house.client(house.kernel())
    told = client.post(upper)
    assert not told.replayed
    assert (told.status, told.code) == (200, "")
    again = client.post(lower)
    assert (again.status, again.replayed) == (200, True)
    assert again.request_id != told.request_id
    assert house.provider.count(lower) == house.provider.count(upper) == 1
    house.verify()


def test_the_victim_of_a_deadlock_runs_again_whole(house: House) -> None:
    """The test holds the account and asks for the request, the kernel does it the other way."""
    op = house.operation()
    kernel = house.kernel()
    with contextlib.closing(house.server.connect(house.schema, autocommit=False)) as other:
        cursor = other.cursor()
        # Who has written less is the victim.
        cursor.execute("UPDATE auth_permission SET name = CONCAT(name, '!')")
        cursor.execute("SELECT 1 FROM bz_usage_accounts WHERE id = %s FOR UPDATE", [lives.ACCOUNT])
        posted = house.client(kernel).post_later(op)
        house.wait_for_a_lock("UPDATE")
        # Not before the kernel's transaction is gone, which waits for this one.
        cursor.execute("SELECT 1 FROM bz_usage_requests WHERE operation_id = %s FOR UPDATE", [op])
        assert cursor.fetchall() == ()
        house.plan("deadlock: the kernel is the victim", lambda: True)
        other.rollback()
    answer = posted.result()
    assert answer.status == 200, (answer.status, answer.body)
    house.wait_states(op, "complete", "settled")
    assert house.account()["held_nano"] == 0
    house.verify()
