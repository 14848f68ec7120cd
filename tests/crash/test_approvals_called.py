"""Windows from the claim to the job's end (K3): the shop is called at most once, never re-run."""

import pytest

from kernel import jobs
from tests.support.desk import NO_MAINTENANCE, OLGA, TOOL, Asked, Desk
from tests.support.house import House

pytestmark = pytest.mark.mysql("BAILING_APPROVAL_CONTINUATION_TEST_MYSQL")


def _waits_for_an_operator(desk: Desk, asked: Asked, *, calls: int) -> None:
    """Another kernel does not make the call again: it is uncertain, and the job waits."""
    desk.kernel()
    desk.waits(asked.job_id, "tool_uncertain")
    assert (desk.call(asked)["state"], desk.calls()) == ("dispatching", calls)
    assert desk.states(asked)[1] == "consumed"


# --- the claim ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("when", "state"), [("before", "queued"), ("after", "running")])
def test_killed_around_the_claims_commit_another_worker_takes_the_job_over(
    house: House, desk: Desk, when: str, state: str
) -> None:
    asked, answer = desk.killed_at("claim", when, 2)
    assert answer.status == 200 or answer.lost
    assert desk.states(asked)[:2] == (state, "approved")
    assert desk.calls() == 0
    desk.kernel()
    desk.ends(asked, "done", calls=1)
    house.verify()


# --- the grant is used ----------------------------------------------------------------------------


def test_killed_before_the_calls_dispatch_is_committed_its_grant_is_unused_and_used_later(
    house: House, desk: Desk
) -> None:
    asked, _ = desk.killed_at("begin_call", "before")
    assert desk.states(asked)[:2] == ("running", "approved")
    assert (desk.call(asked)["state"], desk.calls()) == ("proposed", 0)
    desk.kernel()
    desk.ends(asked, "done", calls=1)
    house.verify()


def test_killed_after_the_calls_dispatch_was_committed_it_is_uncertain_though_nothing_was_sent(
    house: House, desk: Desk
) -> None:
    asked, _ = desk.killed_at("begin_call", "after")
    assert desk.states(asked)[:2] == ("running", "consumed")
    _waits_for_an_operator(desk, asked, calls=0)
    desk.resolve(asked, "not_done")
    desk.ends(asked, "done", calls=0)
    assert desk.call(asked)["state"] == "failed"
    house.verify()


def test_killed_while_the_rate_limit_held_the_call_back_its_grant_is_still_usable(
    house: House, desk: Desk
) -> None:
    house.plan("the call was held back", lambda: held)
    with house.office():
        _change_tool(calls_per_minute_max=1)
    first = desk.kernel(stops=[("release", "after")])
    earlier = desk.ask()
    assert desk.decide(first, earlier).status == 200
    desk.ends(earlier, "done", calls=1)
    asked = desk.ask()
    desk.decide_later(first, asked)
    first.wait_stopped("release", "after")
    house.kill(first)
    held = desk.call(asked)["state"] == "proposed"
    assert desk.states(asked)[:2] == ("queued", "approved")
    desk.write("UPDATE bz_tool_calls SET updated_at = updated_at - INTERVAL 61 SECOND")
    desk.kernel()
    desk.ends(asked, "done", calls=2)
    house.verify()


def _change_tool(**fields: object) -> None:
    tool = jobs.get_tool(tool_id=TOOL)
    jobs.change_tool(
        tool_id=TOOL, actor=OLGA, seen_version=tool.version, reason="for the test", **fields
    )


# --- the tool call --------------------------------------------------------------------------------


def test_killed_while_the_tool_works_the_call_is_uncertain_until_an_operator_knows(
    house: House, desk: Desk
) -> None:
    desk.shop.next("hang")
    first = desk.kernel(limits=NO_MAINTENANCE)
    asked = desk.ask()
    assert desk.decide(first, asked).status == 200
    desk.reached()
    house.plan("the shop has the call and does not answer", lambda: desk.calls() == 1)
    house.kill(first)
    _waits_for_an_operator(desk, asked, calls=1)
    desk.resolve(asked, "done")
    desk.ends(asked, "done", calls=1)
    assert desk.call(asked)["state"] == "done"
    house.verify()


def test_killed_with_the_tools_answer_in_hand_the_call_is_uncertain_and_was_made_once(
    house: House, desk: Desk
) -> None:
    """The shop refunded and said so; the process died before it could write that down."""
    asked, _ = desk.killed_at("finish_call", "before")
    assert desk.calls() == 1
    _waits_for_an_operator(desk, asked, calls=1)
    desk.resolve(asked, "done")
    desk.ends(asked, "done", calls=1)
    house.verify()


def test_killed_after_the_tools_answer_was_saved_the_job_goes_on_with_it(
    house: House, desk: Desk
) -> None:
    asked, _ = desk.killed_at("finish_call", "after")
    assert (desk.call(asked)["state"], desk.calls()) == ("done", 1)
    desk.kernel()
    desk.ends(asked, "done", calls=1)
    house.verify()


def test_a_worker_that_lost_its_lease_writes_nothing_when_it_comes_back(
    house: House, desk: Desk
) -> None:
    """It stands after its claim; meanwhile another took the job and waits for the shop."""
    first = desk.kernel(stops=[("claim", "after", 2)])
    asked = desk.ask()
    assert desk.decide(first, asked).status == 200
    first.wait_stopped("claim", "after")
    desk.shop.next("hold")
    second = desk.kernel()
    desk.reached()
    (held,) = house.rows("SELECT owner, fence_token FROM bz_jobs WHERE id = %s", asked.job_id)
    first.release("claim", "after")
    desk.ask()  # the first kernel, or the second, is at work again
    row = desk.job(asked.job_id)
    assert (row["state"], row["owner"], row["fence_token"]) == (
        "running",
        held["owner"],
        held["fence_token"],
    )
    desk.shop.release()
    desk.ends(asked, "done", calls=1)
    assert second.is_running()
    house.verify()


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("when", "state"), [("before", "running"), ("after", "done")])
def test_killed_around_the_commit_of_the_jobs_end_it_ends_once_from_what_is_saved(
    house: House, desk: Desk, when: str, state: str
) -> None:
    asked, _ = desk.killed_at("finish", when)
    assert (desk.job(asked.job_id)["state"], desk.calls()) == (state, 1)
    desk.kernel()
    desk.ends(asked, "done", calls=1)
    steps = house.rows("SELECT id FROM bz_usage_requests WHERE operation_id LIKE 'job:%%'")
    assert len(steps) == 2
    house.verify()
