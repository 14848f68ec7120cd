"""A row that somebody holds for long, as a vanished host does, holds up nobody but its own (B5)."""

from datetime import timedelta

import pytest
from django.db import OperationalError

from kernel import approvals, clock
from kernel.delivery import recovery as delivery_recovery
from kernel.errors import CapReached, Unavailable
from kernel.jobs.recovery import recovery_page
from kernel.models import Account, Approval, Job, Notification, Request
from kernel.states import Waiting
from kernel.transactions import is_lock_wait
from kernel.usage.admission import Admission, admit, admit_unless_held
from kernel.usage.recovery import expire_leases
from kernel.usage.settlement import Settled, settle, settle_unless_held, settlement_page
from tests.approvals.place import STORE, let_expire, one, running
from tests.delivery import post
from tests.support.held import held
from tests.support.product import ask, assert_invariants, make_account, make_service
from tests.usage.flow import CHARGE_NANO, answered, dispatched, states

pytestmark = pytest.mark.usefixtures("server_db")


@pytest.fixture
def two_accounts(kernel_db: None) -> None:
    make_account(cap_nano=10**12)
    make_account("other", cap_nano=10**12)
    make_service(max_output_tokens=100)


def billing(request_id: str) -> str:
    return states(request_id)[1]


def past() -> object:
    return clock.db_now() - timedelta(minutes=5)


# --- settlement -------------------------------------------------------------------------------


def test_a_held_account_keeps_no_other_from_being_settled(two_accounts: None) -> None:
    waits, goes = answered("op-1"), answered("op-2", account_id="other")
    with held(Account, "acme"):
        with pytest.raises(OperationalError) as lost:
            settle(items=[waits, goes])
        assert is_lock_wait(lost.value), "the account is not held: the test shows nothing"
        report = settlement_page(cursor=None, limit=50)
        assert (report.scanned, report.settled, report.deferred, report.failed) == (2, 1, 1, 0)
        assert (billing(waits), billing(goes)) == ("pending", "settled")
    assert settlement_page(cursor=None, limit=50).settled == 1
    assert [Account.objects.get(id=one).consumed_nano for one in ("acme", "other")] == [
        CHARGE_NANO,
        CHARGE_NANO,
    ]
    assert_invariants()


def test_a_held_request_keeps_no_other_of_its_account_from_being_settled(
    two_accounts: None,
) -> None:
    waits, goes = answered("op-1"), answered("op-2")
    with held(Request, waits):
        assert settlement_page(cursor=None, limit=50).settled == 1
        assert (billing(waits), billing(goes)) == ("pending", "settled")
    assert settle(items=[waits]) == [Settled(waits, "settled", "")]
    assert_invariants()


def test_settling_what_nobody_holds_tells_each_its_own(two_accounts: None) -> None:
    waits, goes = answered("op-1"), answered("op-2", account_id="other")
    with held(Account, "acme"):
        first, second, third = settle_unless_held(items=[goes, waits, "req_none"])
    assert first == Settled(goes, "settled", "")
    assert isinstance(second, Unavailable) and second.retryable
    assert isinstance(third, Unavailable)
    assert settle_unless_held(items=[waits]) == settle(items=[waits])


# --- admission --------------------------------------------------------------------------------


def test_a_held_account_keeps_no_other_from_being_admitted(two_accounts: None) -> None:
    items = [ask("op-1"), ask("op-2", account_id="other"), ask("op-3")]
    with held(Account, "acme"):
        with pytest.raises(OperationalError) as lost:
            admit(items=items)
        assert is_lock_wait(lost.value), "the account is not held: the test shows nothing"
        first, second, third = admit_unless_held(items=items)
        assert isinstance(first, Unavailable) and isinstance(third, Unavailable)
        assert isinstance(second, Admission) and second.created
        assert Request.objects.get().operation_id == "op-2", "nothing else was written"
    again = admit(items=[ask("op-1"), ask("op-2", account_id="other"), ask("op-3")])
    assert [isinstance(one, Admission) and one.created for one in again] == [True, False, True]
    assert_invariants()


def test_an_account_without_a_cap_is_admitted_while_it_is_held(two_accounts: None) -> None:
    Account.objects.filter(id="acme").update(cap_nano=None)
    with held(Account, "acme"):
        (found,) = admit_unless_held(items=[ask("op-1")])
    assert isinstance(found, Admission) and found.created


def test_a_cap_holds_where_nobody_is_waited_for(two_accounts: None) -> None:
    Account.objects.filter(id="other").update(cap_nano=1)
    with held(Account, "acme"):
        (refused,) = admit_unless_held(items=[ask("op-1", account_id="other")])
    assert isinstance(refused, CapReached)


# --- the other passes -------------------------------------------------------------------------


def test_a_held_request_keeps_no_other_lease_from_ending(two_accounts: None) -> None:
    waits, goes = dispatched("op-1").request_id, dispatched("op-2").request_id
    Request.objects.update(lease_expires_at=past())
    with held(Request, waits):
        assert expire_leases(limit=50).settled == 1
        assert (states(waits)[0], states(goes)[0]) == ("dispatched", "unknown")
    assert expire_leases(limit=50).settled == 1
    assert states(waits)[0] == "unknown"


def test_a_held_question_keeps_no_other_from_expiring(two_accounts: None) -> None:
    waits, goes = one("req-1"), one("req-2")
    let_expire(waits)
    let_expire(goes)
    with held(Approval, waits.id):
        assert approvals.expire_page(limit=10).settled == 1
        assert dict(Approval.objects.values_list("id", "state")) == {
            waits.id: "open",
            goes.id: "expired",
        }
    assert approvals.expire_page(limit=10).settled == 1


def test_a_held_message_keeps_no_other_from_being_reclaimed(two_accounts: None) -> None:
    post.destination("shop")
    waits, goes = post.queued(2, to="shop")
    post.take()
    Notification.objects.update(lease_expires_at=past())
    with held(Notification, waits):
        assert delivery_recovery.reclaim_page(limit=10).settled == 1
        assert dict(Notification.objects.values_list("id", "state")) == {
            waits: "sending",
            goes: "queued",
        }
    assert delivery_recovery.reclaim_page(limit=10).settled == 1


def test_a_held_job_keeps_no_other_from_going_on(two_accounts: None) -> None:
    waits, goes = running("req-1"), running("req-2")
    for job in (waits, goes):
        Job.objects.filter(id=job.id).update(
            state="waiting", waiting_reason=Waiting.MODEL_UNKNOWN, owner="", due_at=past()
        )
    with held(Job, waits.id):
        report = recovery_page(store=STORE)(limit=10)
        assert (report.settled, report.failed) == (1, 1)
        assert dict(Job.objects.values_list("id", "state")) == {
            waits.id: "waiting",
            goes.id: "queued",
        }
    assert recovery_page(store=STORE)(limit=10).settled == 1
