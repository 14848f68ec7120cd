"""The proof of approvals bites: each seeded mutant is killed by a case that the product passes."""

from collections.abc import Callable

import pytest

from tests.crash import test_approvals_called, test_approvals_decided
from tests.support.desk import Desk
from tests.support.faults import FaultRecord
from tests.support.house import House

pytestmark = pytest.mark.mysql("BAILING_APPROVAL_CONTINUATION_TEST_MYSQL")

Case = Callable[[House, Desk], None]

# The mutant, a case that kills it, and what that case then complains about.
KILLERS: list[tuple[str, Case, str]] = [
    (
        "grant_used_before_the_rate_limit",
        test_approvals_called.test_killed_while_the_rate_limit_held_the_call_back_its_grant_is_still_usable,
        "'consumed'",
    ),
    (
        "blind_save_of_the_job",
        test_approvals_decided.test_killed_after_the_admissions_commit_the_job_is_never_admitted_again,
        r"assert 0 == 1|no marker is left",
    ),
    (
        "lease_without_owner",
        test_approvals_called.test_a_worker_that_lost_its_lease_writes_nothing_when_it_comes_back,
        "'waiting'",
    ),
    (
        "decision_that_reads_and_then_writes",
        test_approvals_decided.test_of_two_processes_that_decide_at_once_one_wins_and_the_other_learns_who,
        r"200, ''",
    ),
    (
        "admission_that_ignores_its_marker",
        test_approvals_decided.test_killed_after_the_first_of_two_approvals_was_noted_the_job_waits_for_the_second,
        "d-apr_",
    ),
    (
        "continuation_after_the_decision",
        test_approvals_decided.test_killed_after_the_decisions_commit_the_job_goes_on_without_anybodys_help,
        r"'approved', ''",
    ),
    (
        "uncertain_call_is_sent_again",
        test_approvals_called.test_killed_with_the_tools_answer_in_hand_the_call_is_uncertain_and_was_made_once,
        "waits for tool_uncertain",
    ),
    (
        "on_commit_is_the_only_trigger",
        test_approvals_decided.test_with_another_process_alive_the_job_continues_within_six_seconds,
        "the job runs again|< 6",
    ),
]


@pytest.mark.parametrize(
    ("mutant", "case", "complaint"), KILLERS, ids=[mutant for mutant, _, _ in KILLERS]
)
def test_a_seeded_mutant_of_approvals_is_killed(  # noqa: PLR0917
    house: House, desk: Desk, fault_record: FaultRecord, mutant: str, case: Case, complaint: str
) -> None:
    house.mutant = mutant
    fault_record.seeded.append(mutant)
    with pytest.raises(AssertionError, match=complaint):
        case(house, desk)
    fault_record.killed.append(mutant)
    house.verified = True
