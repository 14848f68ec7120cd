"""Windows around the dispatch commit (K1): never sent without it, never sent again after it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel import usage
from tests.support import lives
from tests.support.house import DISPATCH, WAIT_SECONDS, House
from tests.support.wait import wait_until

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")


def test_killed_before_the_dispatch_commit_nothing_was_sent(
    house: House,
) -> None:
    op = house.operation()
    assert house.killed_at("dispatch", "before", op).lost
    assert house.provider.count(op) == 0
    assert house.states(op) == ("admitted", "open", "")

    second = house.kernel()
    client = house.client(second)
    house.wait_maintained(second)
    assert client.post(op).code == "not_dispatched"
    assert house.provider.count(op) == 0
    assert client.act(op, "dispatch").json["result_state"] == "complete"
    assert client.act(op, "dispatch").replayed
    assert house.provider.count(op) == 1
    house.wait_states(op, "complete", "settled")
    house.verify()


def _becomes_unknown_and_is_never_sent(house: House, op: str) -> None:
    """A dispatch whose process died: unknown when its lease has ended, and no call, ever."""
    assert house.states(op) == ("dispatched", "open", "")
    client = house.client(house.kernel())
    wait_until(lambda: house.states(op)[0] != "dispatched", WAIT_SECONDS, about="it was recovered")
    assert house.states(op) == ("unknown", "pending", "no_usage")
    for answer in (client.post(op), client.post(op), client.act(op, "dispatch")):
        assert (answer.status, answer.code) == (502, "outcome_unknown")
        assert not answer.may_be_repeated
    assert house.provider.count(op) == 0
    assert house.account()["held_nano"] > 0


def test_killed_after_the_dispatch_commit_the_outcome_is_unknown_and_it_is_never_sent(
    house: House,
) -> None:
    op = house.operation()
    assert house.killed_at("dispatch", "after", op).lost
    _becomes_unknown_and_is_never_sent(house, op)
    row = house.request(op)
    assert (row["error_code"], row["fence_token"] != "") == ("owner_lost", True)
    with house.office():
        seen = lives.read(row["id"])
        usage.resolve_unknown(
            request_id=row["id"],
            evidence=usage.Evidence(executed=False),
            note="the provider has no such call",
            actor=lives.ACTOR,
            seen_updated_at=seen.updated_at,
        )
    assert house.states(op) == ("failed", "not_charged", "not_executed")
    assert house.account()["held_nano"] == 0
    house.verify()


def test_killed_while_the_ok_of_the_dispatch_was_withheld_the_outcome_is_unknown(
    house: House,
) -> None:
    op = house.operation()
    assert house.killed_awaiting_ok(DISPATCH, op).lost
    _becomes_unknown_and_is_never_sent(house, op)
    house.verify()


def test_the_dispatch_commit_of_a_dead_process_lands_late_and_nobody_sends(house: House) -> None:
    op = house.operation()
    first = house.kernel(through_proxy=True)
    rule = house.on_commit(containing=DISPATCH, action="hold_request")
    posted = house.client(first).post_later(op)
    rule.wait_fired()
    second = house.client(house.kernel())
    house.kill(first)
    assert posted.result().lost
    assert house.states(op) == ("admitted", "open", "")

    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(second.act, op, "dispatch")
        house.wait_for_a_lock("UPDATE bz_usage_requests")
        rule.release()
        assert rule.wait_outcome() == "committed"
        assert (asked.result().status, asked.result().code) == (409, "not_admitted")
    house.wait_states(op, "unknown", "pending", "no_usage")
    assert house.provider.count(op) == 0
    house.verify()


def test_a_living_process_whose_dispatch_was_not_acknowledged_sends_once(
    house: House,
) -> None:
    op = house.operation()
    client = house.client(house.kernel(through_proxy=True))
    house.on_commit(containing=DISPATCH, action="withhold_ok")
    answer = client.post(op)
    assert (answer.status, answer.replayed) == (200, False)
    assert client.post(op).replayed
    assert house.provider.count(op) == 1
    house.wait_states(op, "complete", "settled")
    house.verify()


def test_a_living_process_whose_dispatch_never_arrived_decides_again_and_sends_once(
    house: House,
) -> None:
    op = house.operation()
    client = house.client(house.kernel(through_proxy=True))
    house.on_commit(containing=DISPATCH, action="drop_request")
    answer = client.post(op)
    assert (answer.status, answer.replayed) == (200, False)
    assert client.post(op).replayed
    assert house.provider.count(op) == 1
    house.wait_states(op, "complete", "settled")
    house.verify()


def test_of_two_processes_that_are_asked_to_send_one_request_one_calls(house: House) -> None:
    op = house.operation()
    house.killed_at("admit", "after", op)
    first, second = house.kernel(stops=[("dispatch", "before")]), house.kernel()
    with ThreadPoolExecutor(2) as threads:
        sent = threads.submit(house.client(first).act, op, "dispatch")
        first.wait_stopped("dispatch", "before")
        waits = threads.submit(house.client(second).act, op, "dispatch")
        house.wait_for_a_lock("UPDATE")
        first.release("dispatch", "before")
        answers = [sent.result(), waits.result()]
    assert house.provider.count(op) == 1
    assert any(answer.status == 200 for answer in answers), answers
    house.wait_states(op, "complete", "settled")
    house.verify()
