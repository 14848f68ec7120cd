"""Dispatch and cancel: one fence per request, confirmed before a byte leaves (A3, A4, A7, A16)."""

from datetime import timedelta

import pytest

from kernel import clock, usage
from kernel.errors import CommitOutcomeUnknown, Conflict, LostRace, NotFound
from kernel.models import Account, AuditRow, Request
from kernel.usage.dispatch import DispatchOrder, Fence, cancel, confirm_dispatch, dispatch, order
from kernel.usage.recovery import renew_leases
from tests.support.commits import LANDED, VANISHED, at_commit
from tests.support.product import (
    OPERATOR,
    admitted,
    ask,
    assert_invariants,
    make_account,
    make_service,
    reread,
)
from tests.usage.flow import OWNER, at_once, dispatched, outcome_of, row_of, saved, states


@pytest.fixture
def acme(kernel_db: None) -> None:
    make_account()
    make_service(max_output_tokens=100)


@pytest.fixture
def capped(kernel_db: None) -> None:
    make_account(cap_nano=10**12)
    make_service(max_output_tokens=100)


def wanted(row: Request, owner: str = OWNER) -> DispatchOrder:
    return order(request_id=row.id, owner=owner)


def sent(*orders: DispatchOrder) -> list[Fence | Exception]:
    return dispatch(items=list(orders))


# --- dispatch ---------------------------------------------------------------------------------


def test_an_admitted_request_is_dispatched_under_owner_and_token(acme: None) -> None:
    row = admitted(ask())
    asked = wanted(row)
    (fence,) = sent(asked)
    stored = reread(row)
    assert isinstance(fence, Fence)
    assert (stored.result_state, stored.billing_state) == ("dispatched", "open")
    assert (stored.owner, stored.fence_token) == (OWNER, asked.token)
    assert fence.token == asked.token
    assert stored.lease_expires_at - stored.dispatched_at == timedelta(seconds=60)
    assert_invariants()


def test_a_request_is_dispatched_once(acme: None) -> None:
    row = admitted(ask())
    first, second = wanted(row), wanted(row, "krn-other")
    sent(first)
    (refusal,) = sent(second)
    assert isinstance(refusal, LostRace)
    assert refusal.error_code == "not_admitted"
    assert reread(row).fence_token == first.token


def test_of_many_owners_at_once_one_gets_the_fence(acme: None) -> None:
    row = admitted(ask())
    orders = [wanted(row, f"krn-{number}") for number in range(8)]
    found = at_once(*(lambda one=one: sent(one)[0] for one in orders))
    fences = [one for one in found if isinstance(one, Fence)]
    assert len(fences) == 1
    assert all(isinstance(one, Fence | LostRace) for one in found)
    assert reread(row).fence_token == fences[0].token


def test_every_fence_has_a_token_of_its_own(acme: None) -> None:
    tokens = {order(request_id="req_1", owner=OWNER).token for _ in range(100)}
    assert len(tokens) == 100


def test_a_batch_gives_each_order_its_own_outcome(acme: None) -> None:
    rows = [admitted(ask(f"op-{number}")) for number in range(3)]
    cancel(request_id=rows[1].id, actor=OPERATOR)
    found = sent(*(wanted(row) for row in rows), order(request_id="req_none", owner=OWNER))
    assert [type(one) for one in found] == [Fence, LostRace, Fence, Conflict]


@pytest.mark.parametrize(
    "change", [{"model": "other"}, {"base_url": "http://127.0.0.1:10/v1"}, {"active": False}]
)
def test_a_request_is_not_sent_on_a_route_that_was_changed_since(
    acme: None, change: dict[str, object]
) -> None:
    row = admitted(ask())
    usage.change_service(service_id="gpt", version=1, actor=OPERATOR, **change)
    (refusal,) = sent(wanted(row))
    assert isinstance(refusal, Conflict)
    assert refusal.error_code == "service_changed"
    assert "Cancel" in refusal.way_out
    assert reread(row).result_state == "admitted"


# --- a lost acknowledgement -------------------------------------------------------------------


def test_a_dispatch_that_landed_is_found_under_the_own_fence(acme: None) -> None:
    row = admitted(ask())
    asked = wanted(row)
    with at_commit("dispatch", LANDED), pytest.raises(CommitOutcomeUnknown):
        sent(asked)
    (fence,) = confirm_dispatch(items=[asked])
    assert isinstance(fence, Fence)
    assert (fence.token, fence.owner) == (asked.token, OWNER)
    assert fence.lease_expires_at == reread(row).lease_expires_at


def test_a_dispatch_that_did_not_land_is_decided_anew_before_anything_is_sent(acme: None) -> None:
    row = admitted(ask())
    asked = wanted(row)
    with at_commit("dispatch", VANISHED), pytest.raises(CommitOutcomeUnknown):
        sent(asked)
    assert reread(row).result_state == "admitted"
    (fence,) = confirm_dispatch(items=[asked])
    assert isinstance(fence, Fence)
    assert reread(row).fence_token == asked.token


def test_a_foreign_fence_is_never_taken_for_the_own(acme: None) -> None:
    row = admitted(ask())
    mine, theirs = wanted(row), wanted(row, "krn-other")
    with at_commit("dispatch", VANISHED), pytest.raises(CommitOutcomeUnknown):
        sent(mine)
    sent(theirs)
    (refusal,) = confirm_dispatch(items=[mine])
    assert isinstance(refusal, LostRace)
    assert reread(row).fence_token == theirs.token


def test_an_own_fence_whose_lease_was_expired_meanwhile_sends_nothing(acme: None) -> None:
    row = admitted(ask())
    asked = wanted(row)
    with at_commit("dispatch", LANDED), pytest.raises(CommitOutcomeUnknown):
        sent(asked)
    Request.objects.filter(id=row.id).update(lease_expires_at=clock.now() - timedelta(hours=1))
    usage.expiry_page(limit=10)
    (refusal,) = confirm_dispatch(items=[asked])
    assert isinstance(refusal, LostRace)
    assert reread(row).result_state == "unknown"


def test_a_request_cancelled_meanwhile_is_not_sent(acme: None) -> None:
    row = admitted(ask())
    asked = wanted(row)
    with at_commit("dispatch", VANISHED), pytest.raises(CommitOutcomeUnknown):
        sent(asked)
    cancel(request_id=row.id, actor=OPERATOR)
    (refusal,) = confirm_dispatch(items=[asked])
    assert isinstance(refusal, LostRace)


# --- leases -----------------------------------------------------------------------------------


def test_only_the_owner_renews_and_only_while_it_runs(acme: None) -> None:
    fences = [dispatched(f"op-{number}") for number in range(3)]
    ids = [fence.request_id for fence in fences]
    saved(outcome_of(fences[2]))
    past = clock.now() - timedelta(hours=1)
    Request.objects.update(lease_expires_at=past)
    renew_leases(owner="krn-other", request_ids=ids)
    assert {row_of(each).lease_expires_at for each in ids} == {past}
    renew_leases(owner=OWNER, request_ids=[ids[0], ids[2]])
    assert row_of(ids[0]).lease_expires_at > clock.now()
    assert row_of(ids[1]).lease_expires_at == past
    assert row_of(ids[2]).lease_expires_at == past, "it has ended"


# --- cancel -----------------------------------------------------------------------------------


def test_before_dispatch_a_cancel_owes_nothing_and_gives_the_hold_back(capped: None) -> None:
    row = admitted(ask())
    assert Account.objects.get().held_nano > 0
    assert cancel(request_id=row.id, actor=OPERATOR, reason="not needed") == "not_charged"
    assert states(row) == ("cancelled", "not_charged", "cancelled")
    assert Account.objects.get().held_nano == 0
    (refusal,) = sent(wanted(row))
    assert isinstance(refusal, LostRace)
    assert_invariants()


def test_a_cancel_is_audited_with_actor_and_reason(acme: None) -> None:
    row = admitted(ask())
    cancel(request_id=row.id, actor=OPERATOR, reason="not needed")
    audit = AuditRow.objects.get(subject=f"request:{row.id}")
    assert (audit.action, audit.actor_id, audit.reason) == ("request.cancel", "olga", "not needed")
    assert '"admitted"' in audit.before_text


def test_a_second_cancel_changes_nothing_and_audits_nothing(capped: None) -> None:
    row = admitted(ask())
    for _ in range(2):
        assert cancel(request_id=row.id, actor=OPERATOR) == "not_charged"
    assert AuditRow.objects.filter(subject=f"request:{row.id}").count() == 1
    assert_invariants()


def test_after_dispatch_what_was_used_is_recorded_and_charged(capped: None) -> None:
    fence = dispatched()
    assert cancel(request_id=fence.request_id, actor=OPERATOR) == "pending"
    assert states(fence.request_id) == ("cancelled", "pending", "no_usage")
    assert Account.objects.get().held_nano > 0, "the hold stays until it is known"
    found = saved(outcome_of(fence))
    assert (found.applied, found.result_state, found.billing_state) == (
        False,
        "cancelled",
        "pending",
    )
    usage.settle(items=[fence.request_id])
    row = row_of(fence.request_id)
    assert states(row) == ("cancelled", "settled", "")
    assert row.billed_nano == 62_500
    assert row.result_sha256 == "", "the late answer itself is not kept"
    assert Account.objects.get().held_nano == 0
    assert_invariants()


def test_after_dispatch_a_proven_rejection_owes_nothing(capped: None) -> None:
    fence = dispatched()
    cancel(request_id=fence.request_id, actor=OPERATOR)
    found = saved(outcome_of(fence, status=400, body=b'{"error":{"message":"no"}}'))
    assert found.billing_state == "not_charged"
    assert states(fence.request_id) == ("cancelled", "not_charged", "rejected")
    assert Account.objects.get().held_nano == 0
    assert_invariants()


@pytest.mark.parametrize("status", [200, 400, 500])
def test_what_has_ended_cannot_be_cancelled(acme: None, status: int) -> None:
    fence = dispatched()
    saved(outcome_of(fence, status=status))
    before = states(fence.request_id)
    with pytest.raises(LostRace, match="cannot be cancelled"):
        cancel(request_id=fence.request_id, actor=OPERATOR)
    assert states(fence.request_id) == before


def test_there_is_nothing_to_cancel_without_a_request(acme: None) -> None:
    with pytest.raises(NotFound):
        cancel(request_id="req_none", actor=OPERATOR)


def test_cancel_and_dispatch_at_once_have_one_winner(acme: None) -> None:
    for number in range(5):
        row = admitted(ask(f"op-{number}"))
        asked = wanted(row)
        at_once(
            lambda row=row: cancel(request_id=row.id, actor=OPERATOR),
            lambda asked=asked: sent(asked)[0],
        )
        stored = reread(row)
        assert stored.result_state == "cancelled", "a cancel ends either state"
        assert (stored.fence_token == asked.token) == (stored.billing_state == "pending")
    assert_invariants()
