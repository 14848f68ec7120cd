"""Caps: admission refuses what would pass them, under any concurrency (A15)."""

import pytest
from django.db import connection

from kernel import usage
from kernel.errors import (
    CapReached,
    InvalidInput,
)
from kernel.models import Account, Body, Request
from kernel.usage.admission import Admission
from tests.support.product import (
    OPERATOR,
    admitted,
    again,
    ask,
    assert_invariants,
    make_account,
    make_service,
)
from tests.usage.flow import Statements, admit_all, at_once

# 1.00 USD of cap; a body of B bytes and 100 output tokens hold B x 2500 + 100 x 10000 nano-USD.
CAP = 1_000_000_000


@pytest.fixture
def acme(kernel_db: None) -> None:
    make_account()
    make_service(max_output_tokens=100)


def only(found: list[Admission | Exception]) -> Admission:
    (one,) = found
    assert isinstance(one, Admission), one
    return one


def refusal_of(found: list[Admission | Exception]) -> Exception:
    (one,) = found
    assert isinstance(one, Exception), one
    return one


# --- caps -------------------------------------------------------------------------------------


def capped(cap_nano: int = CAP, **fields: object) -> None:
    make_account(cap_nano=cap_nano, **fields)
    make_service(max_output_tokens=100)


def test_a_hold_is_an_upper_bound_of_the_charge(kernel_db: None) -> None:
    capped()
    item = ask("op-1", n=3)
    row = admitted(item)
    assert row.hold_nano == len(item.body) * 2500 + 3 * 100 * 10_000
    assert Account.objects.get().held_nano == row.hold_nano


def test_the_callers_own_limit_sizes_the_hold(kernel_db: None) -> None:
    capped()
    item = ask("op-1", max_completion_tokens=7)
    assert admitted(item).hold_nano == len(item.body) * 2500 + 7 * 10_000


def test_under_a_cap_a_request_needs_a_price_and_a_limit(kernel_db: None) -> None:
    make_account(cap_nano=CAP, allow_unpriced=True)
    make_service("unlimited")
    make_service("unpriced", price_provider="", price_model="", max_output_tokens=1)
    for model, code in (("unlimited", "output_limit_required"), ("unpriced", "unpriced_service")):
        refusal = refusal_of(admit_all(ask("op-1", model=model)))
        assert isinstance(refusal, InvalidInput)
        assert refusal.error_code == code
    admitted(ask("op-1", model="unlimited", max_tokens=5))


def test_a_request_over_the_cap_leaves_nothing_and_may_come_again(kernel_db: None) -> None:
    capped(cap_nano=1000)
    item = ask("op-1")
    refusal = refusal_of(admit_all(item))
    assert isinstance(refusal, CapReached)
    assert refusal.status == 402
    assert not Request.objects.exists()
    assert not Body.objects.exists()
    usage.change_account(account_id="acme", version=1, actor=OPERATOR, cap_nano=CAP)
    assert only(admit_all(again(item))).created
    assert_invariants()


def room_for(count: int) -> None:
    """An account whose cap has room for `count` requests like ask('op-1')."""
    hold = len(ask("op-1").body) * 2500 + 100 * 10_000
    capped(cap_nano=count * hold + hold // 2)


def test_a_batch_fills_the_cap_exactly(kernel_db: None) -> None:
    room_for(3)
    found = admit_all(*(ask(f"op-{number}") for number in range(8)))
    assert [isinstance(one, Admission) for one in found] == [True] * 3 + [False] * 5
    assert_invariants()


def test_a_batch_holds_in_one_statement_per_account_when_it_fits(kernel_db: None) -> None:
    room_for(8)
    items = [ask(f"op-{number}") for number in range(8)]
    statements = Statements()
    with connection.execute_wrapper(statements):
        admit_all(*items)
    assert len(statements.touching("bz_usage_accounts", verb="UPDATE")) == 1
    assert_invariants()


def test_many_at_once_never_pass_the_cap(kernel_db: None) -> None:
    room_for(3)
    found = at_once(*(lambda n=number: admit_all(ask(f"op-{n}")) for number in range(8)))
    admissions = [one for (one,) in found if isinstance(one, Admission)]
    assert len(admissions) == 3
    assert all(isinstance(one, Admission | CapReached) for (one,) in found)
    assert_invariants()


def test_an_overrun_stops_admissions_until_the_cap_is_raised(kernel_db: None) -> None:
    capped()
    Account.objects.update(overrun_at=Account.objects.get().created_at)
    assert isinstance(refusal_of(admit_all(ask("op-1"))), CapReached)
    usage.change_account(account_id="acme", version=1, actor=OPERATOR, cap_nano=2 * CAP)
    assert only(admit_all(ask("op-1"))).created


def test_a_hold_beyond_every_number_is_over_the_cap_and_no_database_error(kernel_db: None) -> None:
    make_account(cap_nano=2**63 - 1, multiplier_millionths=1_000_000_000)
    make_service(max_output_tokens=100)
    usage.add_price(
        provider="openai",
        model="gpt-4o",
        rates={"input": "1000", "output": "1000"},
        valid_from_at=None,
        actor=OPERATOR,
    )
    Account.objects.update(consumed_nano=10**18)
    refusal = refusal_of(admit_all(ask("op-1", max_completion_tokens=100_000_000, n=128)))
    assert isinstance(refusal, CapReached)


def test_an_account_without_a_cap_takes_no_hold_and_writes_no_account_row(acme: None) -> None:
    statements = Statements()
    with connection.execute_wrapper(statements):
        row = admitted(ask("op-1"))
    assert row.hold_nano == 0
    assert statements.touching("bz_usage_requests", verb="INSERT")
    assert statements.touching("bz_usage_accounts", verb="UPDATE") == []
    assert not [t for t in statements.touching("bz_usage_accounts") if "FOR UPDATE" in t]


def test_an_account_without_a_cap_never_waits_for_the_account_row(
    server_db: None, acme: None
) -> None:
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("SELECT id FROM bz_usage_accounts WHERE id = 'acme' FOR UPDATE")
            assert only(admit_all(ask("op-1"))).created
    finally:
        other.rollback()
        other.close()
