"""The harness bites: each seeded mutant is killed by a case that the product passes."""

from collections.abc import Callable

import pytest

from tests.crash import (
    test_admission,
    test_dispatch,
    test_lost_lease,
    test_result,
    test_settlement,
)
from tests.races import test_processes
from tests.support.faults import FaultRecord
from tests.support.house import House

pytestmark = pytest.mark.mysql("BAILING_USAGE_PROCESS_CRASH_TEST")

Case = Callable[[House], None]

# The mutant, a case that kills it, and what that case then complains about.
KILLERS: list[tuple[str, Case, str]] = [
    (
        "select_then_insert_admission",
        test_admission.test_the_commit_of_a_dead_process_lands_late_and_the_replacement_finds_it,
        "status=503",
    ),
    (
        "lost_acknowledgement_is_a_rollback",
        test_admission.test_a_living_process_whose_admission_was_not_acknowledged_knows_its_row,
        "503, False",
    ),
    (
        "lost_acknowledgement_is_a_rollback",
        test_dispatch.test_a_living_process_whose_dispatch_was_not_acknowledged_sends_once,
        "409, False",
    ),
    (
        "provider_before_dispatch",
        test_dispatch.test_killed_before_the_dispatch_commit_nothing_was_sent,
        "assert 1 == 0",
    ),
    (
        "provider_call_is_retried",
        test_result.test_a_connection_lost_without_an_answer_is_not_permission_to_call_again,
        "200, ''",
    ),
    (
        "blind_save_of_the_result",
        test_lost_lease.test_a_kernel_that_hung_until_an_operator_resolved_changes_nothing,
        "what is not kept is not answered",
    ),
    (
        "missing_metering_is_zero",
        test_settlement.test_a_result_without_metering_waits_and_is_never_charged_as_zero,
        "settled",
    ),
    (
        "settlement_that_looks_before_it_charges",
        test_processes.test_two_kernels_that_settle_one_page_charge_each_request_once,
        "2500000 == ",
    ),
    (
        "dispatch_without_fence",
        test_dispatch.test_of_two_processes_that_are_asked_to_send_one_request_one_calls,
        "2 == 1",
    ),
    (
        "unknown_is_dispatched_again",
        test_dispatch.test_killed_after_the_dispatch_commit_the_outcome_is_unknown_and_it_is_never_sent,
        "'admitted'",
    ),
    (
        "ids_that_merge_case",
        test_admission.test_ids_that_differ_by_case_are_two_requests_and_stay_two,
        "(409|500) != 200",
    ),
    (
        "swallowed_deadlock",
        test_admission.test_the_victim_of_a_deadlock_runs_again_whole,
        "409|503|500",
    ),
]


@pytest.mark.parametrize(
    ("mutant", "case", "complaint"), KILLERS, ids=[mutant for mutant, _, _ in KILLERS]
)
def test_a_seeded_mutant_is_killed(
    house: House, fault_record: FaultRecord, mutant: str, case: Case, complaint: str
) -> None:
    house.mutant = mutant
    fault_record.seeded.append(mutant)
    with pytest.raises(AssertionError, match=complaint):
        case(house)
    fault_record.killed.append(mutant)
    house.verified = True
