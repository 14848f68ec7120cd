"""Windows from the decision to the admission (K3): one decision, carried through once, whoever."""

import time

import pytest

from tests.support.desk import DEFAULT_PACE, NO_MAINTENANCE, Asked, Desk
from tests.support.house import House
from tests.support.wait import wait_until

pytestmark = pytest.mark.mysql("BAILING_APPROVAL_CONTINUATION_TEST_MYSQL")

CONTINUES_SECONDS_MAX = 6.0


def _goes_on(desk: Desk, asked: Asked) -> None:
    """Another kernel carries it through by maintenance alone; the shop is called once."""
    desk.kernel()
    desk.ends(asked, "done", calls=1)
    assert desk.states(asked) == ("done", "consumed", "done")
    assert len(desk.markers(asked)) == 1


# --- the question ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "state", "questions"), [("before", "running", 0), ("after", "waiting", 1)]
)
def test_killed_around_the_commit_of_a_question_it_is_asked_once_and_the_job_waits_for_it(
    house: House, desk: Desk, when: str, state: str, questions: int
) -> None:
    first = desk.kernel(stops=[("wait", when)])
    job_id = desk.submit()
    first.wait_stopped("wait", when)
    house.kill(first)
    asked_so_far = house.rows("SELECT id FROM bz_approvals WHERE job_id = %s", job_id)
    assert (desk.job(job_id)["state"], len(asked_so_far)) == (state, questions)
    second = desk.kernel()
    asked = desk.asked(job_id)
    assert len(asked.approval_ids) == 1
    assert desk.decide(second, asked).status == 200
    desk.ends(asked, "done", calls=1)
    house.verify()


# --- the decision ---------------------------------------------------------------------------------


def test_killed_before_the_decisions_commit_nothing_is_decided_and_the_repeat_decides(
    house: House, desk: Desk
) -> None:
    asked, answer = desk.killed_at("_decide", "before")
    assert answer.lost
    assert desk.states(asked) == ("waiting", "open", "")
    assert desk.acts(asked) == ["opened"]
    second = desk.kernel()
    repeat = desk.decide(second, asked)
    assert (repeat.status, repeat.json["replayed"]) == (200, False)
    desk.ends(asked, "done", calls=1)
    house.verify()


def test_killed_after_the_decisions_commit_the_job_goes_on_without_anybodys_help(
    house: House, desk: Desk
) -> None:
    asked, answer = desk.killed_at("_decide", "after")
    assert answer.lost
    assert desk.states(asked) == ("waiting", "approved", "owed")
    assert desk.acts(asked) == ["opened", "decided"]
    _goes_on(desk, asked)
    house.verify()


def test_killed_after_the_decisions_commit_the_identical_repeat_finds_it_decided(
    house: House, desk: Desk
) -> None:
    asked, _ = desk.killed_at("_decide", "after")
    second = desk.kernel(limits=NO_MAINTENANCE)
    repeat = desk.decide(second, asked)
    assert (repeat.status, repeat.json["replayed"]) == (200, True)
    other = desk.decide(second, asked, "denied")
    assert (other.status, other.code) == (409, "decision_id_conflict")
    desk.ends(asked, "done", calls=1)
    house.verify()


def test_killed_after_a_denials_commit_the_job_is_refused_and_the_shop_hears_nothing(
    house: House, desk: Desk
) -> None:
    asked, _ = desk.killed_at("_decide", "after", decision="denied")
    assert desk.states(asked) == ("waiting", "denied", "owed")
    desk.kernel()
    desk.ends(asked, "refused", calls=0)
    assert desk.call(asked)["state"] == "failed"
    house.verify()


def _seconds_until_it_runs(desk: Desk, asked: Asked, since: float) -> float:
    wait_until(
        lambda: desk.job(asked.job_id)["state"] in ("running", "done"),
        2 * CONTINUES_SECONDS_MAX,
        about="the job runs again",
        look_every=0.05,
    )
    return time.monotonic() - since


def test_with_another_process_alive_the_job_continues_within_six_seconds(
    house: House, desk: Desk
) -> None:
    """At the default pace of maintenance; nobody repeats the decision."""
    first = desk.kernel(stops=[("_decide", "after")], limits=NO_MAINTENANCE)
    asked = desk.ask()
    desk.kernel(limits=DEFAULT_PACE)
    desk.decide_later(first, asked)
    first.wait_stopped("_decide", "after")
    house.kill(first)
    assert _seconds_until_it_runs(desk, asked, time.monotonic()) < CONTINUES_SECONDS_MAX
    desk.ends(asked, "done", calls=1)
    house.verify()


def test_after_a_restart_the_job_continues_within_six_seconds(house: House, desk: Desk) -> None:
    asked, _ = desk.killed_at("_decide", "after")
    killed_at = time.monotonic()
    desk.kernel(limits=DEFAULT_PACE)
    assert _seconds_until_it_runs(desk, asked, killed_at) < CONTINUES_SECONDS_MAX
    desk.ends(asked, "done", calls=1)
    house.verify()


# --- carrying it through --------------------------------------------------------------------------


def test_killed_before_the_observations_commit_it_is_observed_by_maintenance(
    house: House, desk: Desk
) -> None:
    asked, answer = desk.killed_at("_observe", "before")
    assert answer.lost
    assert desk.acts(asked) == ["opened", "decided"]
    _goes_on(desk, asked)
    house.verify()


def test_killed_after_the_observations_commit_it_is_not_observed_again(
    house: House, desk: Desk
) -> None:
    asked, _ = desk.killed_at("_observe", "after")
    assert desk.acts(asked) == ["opened", "decided", "carried_through"]
    assert desk.states(asked) == ("waiting", "approved", "owed")
    assert desk.markers(asked) == []
    _goes_on(desk, asked)
    house.verify()


def test_killed_before_the_admissions_commit_the_job_still_waits_and_is_admitted_later(
    house: House, desk: Desk
) -> None:
    asked, _ = desk.killed_at("_admit_once", "before")
    assert desk.states(asked) == ("waiting", "approved", "owed")
    assert desk.markers(asked) == []
    _goes_on(desk, asked)
    house.verify()


def test_killed_after_the_admissions_commit_the_job_is_never_admitted_again(
    house: House, desk: Desk
) -> None:
    asked, answer = desk.killed_at("_admit_once", "after")
    assert answer.lost
    assert desk.markers(asked) == [f"{asked.approval_id}.d-{asked.approval_id}"]
    _goes_on(desk, asked)
    house.verify()


def test_killed_before_the_continuations_end_it_ends_later_and_admits_nothing_more(
    house: House, desk: Desk
) -> None:
    asked, _ = desk.killed_at("_finish", "before")
    assert desk.states(asked)[2] == "owed"
    _goes_on(desk, asked)
    house.verify()


def test_killed_after_the_continuations_end_only_the_answer_is_lost(
    house: House, desk: Desk
) -> None:
    asked, answer = desk.killed_at("_finish", "after")
    assert answer.lost
    assert desk.states(asked)[2] == "done"
    second = desk.kernel()
    repeat = desk.decide(second, asked)
    assert (repeat.status, repeat.json["replayed"]) == (200, True)
    desk.ends(asked, "done", calls=1)
    house.verify()


def test_killed_after_the_first_of_two_approvals_was_noted_the_job_waits_for_the_second(
    house: House, desk: Desk
) -> None:
    first = desk.kernel(stops=[("_admit_once", "after")], limits=NO_MAINTENANCE)
    asked = desk.ask([5, 6])
    desk.decide_later(first, asked)
    first.wait_stopped("_admit_once", "after")
    house.kill(first)
    marker = f"{asked.approval_id}.d-{asked.approval_id}"
    assert (desk.states(asked), desk.markers(asked)) == (("waiting", "approved", "owed"), [marker])
    second = desk.kernel()
    desk.is_carried_through(asked)
    assert (desk.job(asked.job_id)["state"], desk.markers(asked)) == ("waiting", [marker])
    assert desk.calls() == 0
    assert desk.decide(second, asked, number=1).status == 200
    desk._until(asked.job_id, lambda row: row["state"] == "done", "is done")
    desk.is_carried_through(asked, 1)
    assert (len(desk.markers(asked)), desk.calls()) == (2, 2)
    house.verify()


# --- two processes, one decision ------------------------------------------------------------------


def test_of_two_processes_that_decide_at_once_one_wins_and_the_other_learns_who(
    house: House, desk: Desk
) -> None:
    first = desk.kernel(stops=[("_decide", "before")])
    second = desk.kernel()
    asked = desk.ask()
    won = desk.decide_later(first, asked, "approved", decision_id="d-first")
    first.wait_stopped("_decide", "before")
    lost = desk.decide_later(second, asked, "denied", decision_id="d-second")
    house.wait_for_a_lock()
    first.release("_decide", "before")
    assert won.result().status == 200
    answer = lost.result()
    assert (answer.status, answer.code) == (409, "already_decided")
    assert answer.json["error"]["decision"] == "approved"
    assert answer.json["error"]["by"]
    desk.ends(asked, "done", calls=1)
    house.verify()


# --- what cannot be promised is not decided -------------------------------------------------------


@pytest.mark.parametrize("fault", ["the table is gone", "the insert is refused"])
def test_a_continuation_that_cannot_be_inserted_takes_the_decision_back_with_it(
    house: House, desk: Desk, fault: str
) -> None:
    kernel = desk.kernel()
    asked = desk.ask()
    cut, heal = {
        "the table is gone": (
            "RENAME TABLE bz_approval_continuations TO bz_away",
            "RENAME TABLE bz_away TO bz_approval_continuations",
        ),
        "the insert is refused": (
            "CREATE TRIGGER no_promise BEFORE INSERT ON bz_approval_continuations FOR EACH ROW"
            " SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by the test'",
            "DROP TRIGGER no_promise",
        ),
    }[fault]
    house.rows(cut)
    answer = desk.decide(kernel, asked)
    house.plan(fault, lambda: answer.status >= 500)
    assert "decision_recorded" not in answer.json
    house.rows(heal)
    assert desk.states(asked) == ("waiting", "open", "")
    assert desk.acts(asked) == ["opened"]
    repeat = desk.decide(kernel, asked)
    assert (repeat.status, repeat.json["replayed"]) == (200, False)
    desk.ends(asked, "done", calls=1)
    house.verify()
