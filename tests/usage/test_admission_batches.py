"""One group commit: what items of one operation get beside each other, in every order (A1, A8)."""

from itertools import permutations
from typing import Any

import pytest
from django.db import connection

from kernel import usage
from kernel.errors import CapReached, CommitOutcomeUnknown
from kernel.models import Account, Body, Request
from kernel.usage.admission import Admission, Submission, admit_again
from kernel.usage.bodies import read_body
from tests.support.commits import LANDED, at_commit
from tests.support.product import (
    OPERATOR,
    admitted,
    ask,
    assert_invariants,
    make_account,
    make_service,
)
from tests.usage.flow import Statements, admit_all

CREATED, REPEATED, CONFLICT = "created", "repeated", "operation_conflict"
NO_SERVICE, CAP = "service_not_found", "cap_reached"
# A body of B bytes and 100 output tokens hold B x 2500 + 100 x 10000 nano-USD.
OUTPUT_NANO = 100 * 10_000


@pytest.fixture
def acme(kernel_db: None) -> None:
    make_account()
    make_service(max_output_tokens=100)


def good() -> Submission:
    return ask("op-1")


def bad() -> Submission:
    """Other content under the same id."""
    return ask("op-1", temperature=0.5)


def lost() -> Submission:
    """A model that no service has."""
    return ask("op-1", model="nope")


def words(found: list[Admission | Exception]) -> list[str]:
    return [
        (CREATED if one.created else REPEATED)
        if isinstance(one, Admission)
        else getattr(one, "error_code", type(one).__name__)
        for one in found
    ]


def alone(items: list[Submission]) -> list[str]:
    """What the same items get one after the other, each in its own transaction."""
    return [words(admit_all(item))[0] for item in items]


def assert_one_row_of(item: Submission) -> None:
    row = Request.objects.get(operation_id=item.operation_id)
    assert row.content_sha256 == item.content_sha256
    assert read_body(request_id=row.id, kind="request") == item.body
    assert Body.objects.exclude(request_id=row.id).count() == 0
    assert_invariants()


# --- beside a stored request ------------------------------------------------------------------

STORED = {"good": REPEATED, "bad": CONFLICT, "lost": CONFLICT}
MAKE = {"good": good, "bad": bad, "lost": lost}


@pytest.mark.parametrize(
    "names",
    [
        *permutations(["good", "bad"]),
        *permutations(["good", "lost"]),
        *sorted(set(permutations(["good", "good", "bad", "lost"]))),
        ("good", "good"),
        ("bad", "lost"),
    ],
    ids="-".join,
)
def test_each_item_is_judged_by_itself_against_the_stored_request(
    acme: None, names: tuple[str, ...]
) -> None:
    row = admitted(good())
    found = admit_all(*(MAKE[name]() for name in names))
    assert words(found) == [STORED[name] for name in names]
    assert {one.request.id for one in found if isinstance(one, Admission)} <= {row.id}
    assert_one_row_of(good())


@pytest.mark.parametrize("names", [*permutations(["good", "bad", "lost"])], ids="-".join)
def test_it_is_so_where_a_new_request_would_be_refused(acme: None, names: tuple[str, ...]) -> None:
    admitted(good())
    usage.change_account(account_id="acme", version=1, actor=OPERATOR, active=False)
    found = admit_all(*(MAKE[name]() for name in names))
    assert words(found) == [STORED[name] for name in names]
    assert_one_row_of(good())


# --- nothing stored ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("good", "bad"), [CREATED, CONFLICT]),
        (("bad", "good"), [CREATED, CONFLICT]),
        (("good", "good"), [CREATED, REPEATED]),
        (("lost", "good"), [NO_SERVICE, CREATED]),
        (("good", "lost"), [CREATED, CONFLICT]),
        (("lost", "lost"), [NO_SERVICE, NO_SERVICE]),
        (("lost", "good", "good"), [NO_SERVICE, CREATED, REPEATED]),
        (("lost", "lost", "good", "bad"), [NO_SERVICE, NO_SERVICE, CREATED, CONFLICT]),
        (("lost", "bad", "good", "bad"), [NO_SERVICE, CREATED, CONFLICT, REPEATED]),
        (("lost", "good", "lost", "good"), [NO_SERVICE, CREATED, CONFLICT, REPEATED]),
        (("bad", "good", "good"), [CREATED, CONFLICT, CONFLICT]),
    ],
    ids="-".join,
)
def test_the_first_that_may_have_a_row_gets_it(
    acme: None, names: tuple[str, ...], expected: list[str]
) -> None:
    items = [MAKE[name]() for name in names]
    assert words(admit_all(*items)) == expected
    if CREATED in expected:
        assert_one_row_of(items[expected.index(CREATED)])
    else:
        assert not Request.objects.exists()


def test_operations_beside_each_other_do_not_touch_each_other(acme: None) -> None:
    stored = admitted(ask("old"))
    found = admit_all(
        ask("new", model="nope"),
        ask("old", temperature=1),
        ask("gone", model="nope"),
        ask("new"),
        ask("old"),
        ask("new", temperature=1),
    )
    assert words(found) == [NO_SERVICE, CONFLICT, NO_SERVICE, CREATED, REPEATED, CONFLICT]
    assert isinstance(found[4], Admission) and found[4].request.id == stored.id
    assert Request.objects.count() == 2
    assert_invariants()


@pytest.mark.parametrize("names", [*permutations(["good", "bad", "lost"])], ids="-".join)
def test_a_batch_gets_what_its_items_get_one_after_the_other(
    acme: None, names: tuple[str, ...]
) -> None:
    make_account("alone")
    together = words(admit_all(*(MAKE[name]() for name in names)))
    extra: dict[str, dict[str, Any]] = {"bad": {"temperature": 0.5}, "lost": {"model": "nope"}}
    apart = [ask("op-1", account_id="alone", **extra.get(name, {})) for name in names]
    assert together == alone(apart)


def test_after_a_lost_acknowledgement_each_item_is_still_judged_by_itself(acme: None) -> None:
    items = [lost(), good(), bad()]
    with at_commit("admit", LANDED), pytest.raises(CommitOutcomeUnknown):
        admit_all(*items)
    assert words(admit_again(items=items)) == [CONFLICT, CREATED, CONFLICT]
    assert_one_row_of(good())


def test_more_items_of_an_operation_cost_no_more_statements(acme: None) -> None:
    def statements(*items: Submission) -> int:
        seen = Statements()
        with connection.execute_wrapper(seen):
            admit_all(*items)
        return len(seen.texts)

    one = statements(ask("op-0"))
    assert statements(*(lost() for _ in range(5)), good(), bad(), good()) == one
    repeat = statements(good())
    assert statements(bad(), good(), lost(), good()) == repeat


# --- under a cap ------------------------------------------------------------------------------


def small() -> Submission:
    return ask("op-1")


def large() -> Submission:
    """Other content under the same id, with a larger body and so a larger hold."""
    return ask("op-1", stop="x" * 400)


def room_for_a_small_one(count: int = 1) -> None:
    hold = len(small().body) * 2500 + OUTPUT_NANO
    make_account(cap_nano=count * hold + 200 * 2500)
    make_service(max_output_tokens=100)


def test_what_would_fit_is_not_refused_for_what_stood_before_it(kernel_db: None) -> None:
    room_for_a_small_one()
    found = admit_all(large(), small(), large(), small())
    assert words(found) == [CAP, CREATED, CONFLICT, REPEATED]
    assert_one_row_of(small())
    hold = len(small().body) * 2500 + OUTPUT_NANO
    assert Account.objects.get().held_nano == hold


def test_a_repeat_of_what_would_pass_the_cap_would_pass_it_too(kernel_db: None) -> None:
    room_for_a_small_one()
    found = admit_all(large(), large(), large())
    assert words(found) == [CAP, CAP, CAP]
    assert all(isinstance(one, CapReached) for one in found)
    assert not Request.objects.exists() and not Body.objects.exists()
    assert_invariants()


def test_neighbours_keep_what_they_got_when_another_is_tried_again(kernel_db: None) -> None:
    room_for_a_small_one(2)
    found = admit_all(ask("op-2"), large(), ask("op-3"), small(), ask("op-1", model="nope"))
    assert words(found) == [CREATED, CAP, CREATED, CAP, NO_SERVICE]
    assert sorted(Request.objects.values_list("operation_id", flat=True)) == ["op-2", "op-3"]
    assert_invariants()
