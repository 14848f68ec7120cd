"""The OK of a COMMIT is withheld (K3): what was committed counts, nothing happens twice."""

import pytest

from tests.support.desk import ADMIT, CONSUME, DECIDE, FINISH, NO_MAINTENANCE, Asked, Desk
from tests.support.house import House

pytestmark = pytest.mark.mysql("BAILING_APPROVAL_CONTINUATION_TEST_MYSQL")


def _asked_through_the_proxy(desk: Desk, containing: str, action: str) -> tuple[Asked, int, bool]:
    """A living kernel meets the fault in the life of one decision: its first answer.

    Its maintenance stays away: it could carry the decision through before the request does.
    """
    kernel = desk.kernel(through_proxy=True, limits=NO_MAINTENANCE)
    asked = desk.ask()
    desk.on_commit(containing, action)
    answer = desk.decide(kernel, asked)
    if answer.status == 503:
        said = answer.json
        assert (said["decision_recorded"], said["continuation_pending"]) == (True, True)
        answer_again = desk.decide(kernel, asked)
        assert (answer_again.status, answer_again.json["replayed"]) == (200, True)
    return asked, answer.status, bool(answer.json.get("replayed"))


# --- the process is killed meanwhile --------------------------------------------------------------


def test_killed_while_the_ok_of_the_decision_was_withheld_it_is_carried_through(
    house: House, desk: Desk
) -> None:
    asked, answer = desk.killed_awaiting_ok(DECIDE)
    assert answer.lost
    assert desk.states(asked) == ("waiting", "approved", "owed")
    desk.kernel()
    desk.ends(asked, "done", calls=1)
    house.verify()


def test_killed_while_the_ok_of_the_admission_was_withheld_it_is_not_admitted_again(
    house: House, desk: Desk
) -> None:
    asked, answer = desk.killed_awaiting_ok(ADMIT)
    assert answer.lost
    assert (desk.states(asked)[2], len(desk.markers(asked))) == ("owed", 1)
    desk.kernel()
    desk.ends(asked, "done", calls=1)
    house.verify()


def test_killed_while_the_ok_of_the_dispatch_was_withheld_the_call_is_uncertain(
    house: House, desk: Desk
) -> None:
    asked, _ = desk.killed_awaiting_ok(CONSUME)
    assert desk.states(asked)[1] == "consumed"
    assert (desk.call(asked)["state"], desk.calls()) == ("dispatching", 0)
    desk.kernel()
    desk.waits(asked.job_id, "tool_uncertain")
    assert desk.calls() == 0
    desk.resolve(asked, "not_done")
    desk.ends(asked, "done", calls=0)
    house.verify()


def test_killed_while_the_ok_of_the_jobs_end_was_withheld_it_has_ended(
    house: House, desk: Desk
) -> None:
    asked, _ = desk.killed_awaiting_ok(FINISH)
    assert desk.job(asked.job_id)["state"] == "done"
    desk.kernel()
    desk.ends(asked, "done", calls=1)
    house.verify()


# --- the process lives on -------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["withhold_ok", "drop_request"])
def test_a_living_process_whose_decision_was_not_acknowledged_asks_again_by_its_id(
    house: House, desk: Desk, action: str
) -> None:
    """The OK is withheld: it finds its own decision. The COMMIT was lost: it decides now."""
    asked, status, replayed = _asked_through_the_proxy(desk, DECIDE, action)
    assert (status, replayed) == (200, action == "withhold_ok")
    desk.ends(asked, "done", calls=1)
    house.verify()


@pytest.mark.parametrize("action", ["withhold_ok", "drop_request"])
def test_503_after_an_admission_that_was_not_acknowledged_and_the_identical_retry_gets_200(
    house: House, desk: Desk, action: str
) -> None:
    asked, status, _ = _asked_through_the_proxy(desk, ADMIT, action)
    assert status == 503
    desk.ends(asked, "done", calls=1)
    house.verify()


@pytest.mark.parametrize("action", ["withhold_ok", "drop_request"])
def test_a_living_process_whose_dispatch_was_not_acknowledged_calls_the_tool_once(
    house: House, desk: Desk, action: str
) -> None:
    asked, status, _ = _asked_through_the_proxy(desk, CONSUME, action)
    assert status == 200
    desk.ends(asked, "done", calls=1)
    house.verify()


@pytest.mark.parametrize("action", ["withhold_ok", "drop_request"])
def test_a_living_process_whose_end_of_the_job_was_not_acknowledged_finds_it_ended(
    house: House, desk: Desk, action: str
) -> None:
    asked, status, _ = _asked_through_the_proxy(desk, FINISH, action)
    assert status == 200
    desk.ends(asked, "done", calls=1)
    house.verify()
