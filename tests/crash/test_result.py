"""Windows around the provider call and the result commit (K1): one call, one result, or unknown."""

from typing import Any

import pytest

from kernel import usage
from kernel.errors import LostRace
from tests.support import lives
from tests.support.client import Client
from tests.support.house import RESULT, House

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")


def _is_unknown_for_good(house: House, client: Client, op: str, **fields: Any) -> None:
    """Called once, outcome not known: repeats are told so and reach no provider."""
    house.wait_states(op, "unknown", "pending", "no_usage")
    repeats = [client.post(op, **fields), client.post(op, **fields), client.act(op, "dispatch")]
    for answer in repeats:
        assert (answer.status, answer.code) == (502, "outcome_unknown")
        assert not answer.may_be_repeated
    assert house.provider.count(op) == 1
    assert client.look(op)["result_state"] == "unknown"


def test_killed_while_the_provider_works_the_outcome_is_unknown_until_resolved(
    house: House,
) -> None:
    op = house.operation()
    house.provider_does("hang", op)
    first = house.kernel()
    posted = house.client(first).post_later(op)
    house.provider.wait_for_call(op, 30)
    house.kill(first)
    assert posted.result().lost

    client = house.client(house.kernel())
    _is_unknown_for_good(house, client, op)
    _resolve_as_executed(house, op)
    assert house.states(op) == ("failed", "settled", "")
    assert [row["amount_nano"] for row in house.ledger(op)] == [lives.CHARGE_NANO]
    assert house.account()["held_nano"] == 0
    with pytest.raises(LostRace):
        _resolve_as_executed(house, op)
    house.verify()


def _resolve_as_executed(house: House, op: str) -> None:
    with house.office():
        seen = lives.read(house.request(op)["id"])
        usage.resolve_unknown(
            request_id=seen.id,
            evidence=usage.Evidence(executed=True, usage=lives.USAGE),
            note="found in the provider's log",
            actor=lives.ACTOR,
            seen_updated_at=seen.updated_at,
        )


def test_killed_with_the_response_in_hand_and_not_committed_the_outcome_is_unknown(
    house: House,
) -> None:
    op = house.operation()
    assert house.killed_at("save_results", "before", op).lost
    assert house.provider.count(op) == 1
    assert house.states(op) == ("dispatched", "open", "")
    _is_unknown_for_good(house, house.client(house.kernel()), op)
    house.verify()


def test_killed_in_the_middle_of_a_stream_the_outcome_is_unknown(
    house: House,
) -> None:
    op = house.operation()
    house.provider_does("stream_hang_midway", op)
    first = house.kernel()
    posted = house.client(first).post_later(op, stream=True)
    house.provider.wait_for_call(op, 30)
    house.kill(first)
    assert posted.result().lost
    _is_unknown_for_good(house, house.client(house.kernel()), op, stream=True)
    house.verify()


def test_a_connection_lost_without_an_answer_is_not_permission_to_call_again(
    house: House,
) -> None:
    op = house.operation()
    house.provider_does("close", op)
    client = house.client(house.kernel())
    first = client.post(op)
    assert (first.status, first.code) == (502, "outcome_unknown")
    _is_unknown_for_good(house, client, op)
    house.verify()


def _is_answered_from_what_is_kept(house: House, op: str) -> None:
    """Another kernel answers the saved bytes and settles them once; the provider hears nothing."""
    row = house.request(op)
    second = house.kernel()
    client = house.client(second)
    house.wait_states(op, "complete", "settled")
    answers = [client.post(op), client.post(op), client.result(op)]
    assert all((answer.status, answer.replayed) == (200, True) for answer in answers)
    assert {answer.body for answer in answers} == {house.result_bytes(row["id"])}
    assert client.result(op).headers["etag"] == f'"{row["result_sha256"]}"'
    assert house.request(op)["result_sha256"] == row["result_sha256"]
    assert [each["amount_nano"] for each in house.ledger(op)] == [lives.CHARGE_NANO]
    assert house.account()["consumed_nano"] == lives.CHARGE_NANO
    assert house.account()["held_nano"] == 0
    assert house.provider.count(op) == 1


def test_killed_after_the_result_commit_the_replacement_settles_and_answers_it(
    house: House,
) -> None:
    op = house.operation()
    assert house.killed_at("save_results", "after", op).lost
    assert house.states(op) == ("complete", "pending", "")
    assert house.ledger(op) == []
    _is_answered_from_what_is_kept(house, op)
    house.verify()


def test_killed_while_the_ok_of_the_result_was_withheld_the_result_is_kept(house: House) -> None:
    op = house.operation()
    assert house.killed_awaiting_ok(RESULT, op).lost
    assert house.states(op) == ("complete", "pending", "")
    _is_answered_from_what_is_kept(house, op)
    house.verify()


def test_a_living_process_whose_result_was_not_acknowledged_finds_it_saved(house: House) -> None:
    op = house.operation()
    client = house.client(house.kernel(through_proxy=True))
    house.on_commit(containing=RESULT, action="withhold_ok")
    assert (client.post(op).status, client.post(op).replayed) == (200, True)
    house.wait_states(op, "complete", "settled")
    house.verify()


def test_a_living_process_whose_result_never_arrived_saves_it_again(
    house: House,
) -> None:
    op = house.operation()
    client = house.client(house.kernel(through_proxy=True))
    house.on_commit(containing=RESULT, action="drop_request")
    assert (client.post(op).status, client.post(op).replayed) == (200, True)
    assert house.provider.count(op) == 1
    house.wait_states(op, "complete", "settled")
    house.verify()


def test_result_saved_and_the_http_delivery_lost_the_repeat_gets_the_saved_bytes(
    house: House,
) -> None:
    op = house.operation()
    first = house.kernel(stops=[("answer", "before")])
    posted = house.client(first).post_later(op)
    first.wait_stopped("answer", "before")
    house.wait_states(op, "complete")
    house.kill(first)
    assert posted.result().lost
    _is_answered_from_what_is_kept(house, op)
    house.verify()


def test_stream_saved_and_its_end_not_delivered_the_repeat_gets_the_whole_stream(
    house: House,
) -> None:
    op = house.operation()
    broken = house.killed_at("save_results", "after", op, stream=True)
    assert broken.lost
    assert b"[DONE]" not in broken.body
    client = house.client(house.kernel())
    whole = client.post(op, stream=True)
    assert (whole.status, whole.replayed) == (200, True)
    assert whole.body.endswith(b"data: [DONE]\n\n")
    # The client did not ask for the usage report that is kept and charged.
    assert b'"usage"' not in whole.body
    assert b'"usage"' in house.result_bytes(house.request(op)["id"])
    house.wait_states(op, "complete", "settled")
    assert house.provider.count(op) == 1
    house.verify()
