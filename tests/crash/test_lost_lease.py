"""A kernel that hangs past its lease and comes back: its original fence still counts, once."""

import pytest

from kernel import usage
from tests.support import lives
from tests.support.house import House
from tests.support.kernel_process import KernelProcess
from tests.support.wait import wait_until

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")


def test_a_kernel_that_hung_past_its_lease_still_saves_its_result_under_its_fence(
    house: House,
) -> None:
    op = house.operation()
    house.provider_does("hold", op)
    first = house.kernel()
    posted = house.client(first).post_later(op)
    house.provider.wait_for_call(op, 30)
    _others_call_it_unknown(house, first, op)

    house.provider.release(op)
    first.resume()
    answer = posted.result()
    assert (answer.status, answer.replayed) == (200, False)
    house.wait_states(op, "complete", "settled")
    assert house.provider.count(op) == 1
    house.verify()


def test_a_kernel_that_hung_until_an_operator_resolved_changes_nothing(
    house: House,
) -> None:
    op = house.operation()
    house.provider_does("hold", op)
    first = house.kernel()
    posted = house.client(first).post_later(op)
    house.provider.wait_for_call(op, 30)
    _others_call_it_unknown(house, first, op)
    with house.office():
        row = lives.read(house.request(op)["id"])
        usage.resolve_unknown(
            request_id=row.id,
            evidence=usage.Evidence(executed=False),
            note="the provider shows no such call",
            actor=lives.ACTOR,
            seen_updated_at=row.updated_at,
        )

    house.provider.release(op)
    first.resume()
    assert posted.result().status != 200, "what is not kept is not answered"
    wait_until(lambda: house.request(op)["late_usage_text"], about="the late metering is kept")
    assert house.states(op) == ("failed", "not_charged", "not_executed")
    assert house.account()["consumed_nano"] == house.account()["held_nano"] == 0
    assert house.provider.count(op) == 1
    house.verify()


def _others_call_it_unknown(house: House, hanging: KernelProcess, op: str) -> None:
    """Stop one kernel with SIGSTOP until another has seen its lease end."""
    hanging.pause()
    house.let_leases_end()
    house.kernel()
    house.wait_states(op, "unknown", "pending", "no_usage")
