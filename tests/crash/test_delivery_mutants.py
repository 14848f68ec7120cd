"""The proof of delivery bites: each seeded mutant is killed by a case that the product passes."""

from collections.abc import Callable

import pytest

from tests.crash import test_delivery_replayed, test_delivery_sent
from tests.support.faults import FaultRecord
from tests.support.house import House
from tests.support.post_room import NATIVE, PostRoom

pytestmark = pytest.mark.mysql("BAILING_NOTIFICATION_TEST_MYSQL")

Case = Callable[..., None]

# The mutant, a case that kills it, and what that case then complains about.
KILLERS: list[tuple[str, Case, dict[str, str], str]] = [
    (
        "replay_under_a_fresh_id",
        test_delivery_replayed.test_killed_after_the_commit_of_the_admission_it_is_not_admitted_again_and_is_resolved,
        {"kind": NATIVE},
        r"'queued' == 'already_queued'",
    ),
    (
        "resolve_before_the_admission",
        test_delivery_replayed.test_killed_before_the_commit_of_the_admission_nothing_is_queued,
        {"kind": NATIVE},
        r"\('resolved', 0\)",
    ),
    (
        "lost_sender_sent_nothing",
        test_delivery_sent.test_killed_while_the_receiver_had_not_answered_the_second_arrival_is_shown,
        {},
        r"'not_sent', 'delivered'",
    ),
    (
        "late_sender_may_write",
        test_delivery_sent.test_a_sender_that_outlives_its_lease_changes_nothing_any_more,
        {},
        r"one more item: 'delivered'",
    ),
    (
        "dead_letter_after_the_death",
        test_delivery_sent.test_killed_before_the_commit_of_the_dead_letter_there_is_none_and_another_writes_it,
        {},
        r"'dead'",
    ),
    (
        "replay_has_an_id_of_its_own",
        test_delivery_replayed.test_killed_before_the_commit_of_the_admission_nothing_is_queued,
        {"kind": NATIVE},
        r"ntf_dlq_",
    ),
    (
        "replay_without_the_verified_child",
        test_delivery_replayed.test_a_child_that_is_not_the_one_that_died_is_refused_by_name_and_nothing_is_queued,
        {},
        r"'queued' != 'refused'",
    ),
]


@pytest.mark.parametrize(
    ("mutant", "case", "how", "complaint"), KILLERS, ids=[killer[0] for killer in KILLERS]
)
def test_a_seeded_mutant_of_delivery_is_killed(  # noqa: PLR0917
    house: House,
    room: PostRoom,
    fault_record: FaultRecord,
    mutant: str,
    case: Case,
    how: dict[str, str],
    complaint: str,
) -> None:
    house.mutant = mutant
    fault_record.seeded.append(mutant)
    with pytest.raises(AssertionError, match=complaint):
        case(house, room, **how)
    fault_record.killed.append(mutant)
    house.verified = True
