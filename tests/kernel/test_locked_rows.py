"""A row that somebody has locked for long, as a vanished host does, holds up only its own (B5)."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError

from kernel import approvals, clock
from kernel.delivery import recovery as delivery_recovery
from kernel.errors import CapReached
from kernel.jobs.recovery import recovery_page
from kernel.models import (
    Account,
    AlertWindow,
    Approval,
    Continuation,
    DeadLetter,
    Destination,
    Job,
    Notification,
    Operation,
    PassStatus,
    Request,
)
from kernel.state import Fence
from kernel.states import Waiting
from kernel.transactions import LOCK_WAITS_MAX, LockWaits, is_lock_wait
from kernel.usage.admission import Admission, admit
from kernel.usage.recovery import expiry_page, renew_leases
from kernel.usage.settlement import Settled, settle, settlement_page
from tests.approvals.place import STORE, carried, let_expire, make_due, one, running
from tests.delivery import post
from tests.operations import place
from tests.support.locked import locked
from tests.support.product import (
    ask,
    assert_invariants,
    look,
    make_account,
    make_service,
    running_kernel,
)
from tests.usage.flow import CHARGE_NANO, OWNER, answered, dispatched, row_of, states
from tests.usage.test_settlement_isolation import poisoned_by_the_database

pytestmark = pytest.mark.usefixtures("server_db")


@pytest.fixture
def accounts(kernel_db: None) -> None:
    for name in ("acme", "other", "third"):
        make_account(name, cap_nano=10**12)
    make_service(max_output_tokens=100)


def billing(*request_ids: str) -> list[str]:
    return [states(request_id)[1] for request_id in request_ids]


def past() -> datetime:
    return clock.db_now() - timedelta(minutes=5)


def waits_in_vain(verb: Callable[..., Any], **values: Any) -> None:
    """What is locked is really waited for: else the test would show nothing."""
    with pytest.raises(OperationalError) as lost:
        verb(**values)
    assert is_lock_wait(lost.value)


# --- settlement -------------------------------------------------------------------------------


def test_a_locked_account_keeps_no_other_from_being_settled(accounts: None) -> None:
    waits, goes = answered("op-1"), answered("op-2", account_id="other")
    with locked(Account, "acme"):
        waits_in_vain(settle, items=[waits, goes])
        report = settlement_page(cursor=None, limit=50)
        assert (report.scanned, report.settled, report.deferred, report.failed) == (2, 1, 1, 0)
        assert billing(waits, goes) == ["pending", "settled"]
    assert settlement_page(cursor=None, limit=50).settled == 1
    assert dict(Account.objects.values_list("id", "consumed_nano")) == {
        "acme": CHARGE_NANO,
        "other": CHARGE_NANO,
        "third": 0,
    }
    assert_invariants()


def test_a_locked_request_keeps_no_other_of_its_account_from_being_settled(
    accounts: None,
) -> None:
    waits, goes = answered("op-1"), answered("op-2")
    with locked(Request, waits):
        assert settlement_page(cursor=None, limit=50).settled == 1
        assert billing(waits, goes) == ["pending", "settled"]
    assert settle(items=[waits]) == [Settled(waits, "settled", "")]
    assert_invariants()


@pytest.mark.parametrize("locked_account", ["acme", "other"])
def test_a_bad_row_and_a_locked_account_on_one_page_keep_nobody_else_waiting(
    accounts: None, locked_account: str
) -> None:
    rows = {name: answered("op-1", account_id=name) for name in ("acme", "other", "third")}
    bad = answered("op-2")
    poisoned_by_the_database(bad)
    with locked(Account, locked_account):
        report = settlement_page(cursor=None, limit=50)
    assert billing(rows["third"], rows[locked_account]) == ["settled", "pending"]
    assert report.scanned == 4 and report.deferred >= 1
    while settlement_page(cursor=None, limit=50).settled:
        pass
    assert billing(*rows.values()) == ["settled"] * 3
    assert row_of(bad).pending_reason == "corrupt"


def test_a_page_ends_where_much_is_locked_and_backs_off_where_all_is() -> None:
    waits, error = LockWaits(), OperationalError(1205, "Lock wait timeout exceeded")
    assert not waits.bears(OperationalError(2006, "gone"))
    for _ in range(LOCK_WAITS_MAX):
        assert not waits.are_enough
        waits.end(done=0)
        assert waits.bears(error)
    assert waits.are_enough
    waits.end(done=1)
    with pytest.raises(OperationalError):
        waits.end(done=0)


def test_twelve_locked_accounts_do_not_starve_one_that_is_free(accounts: None) -> None:
    names = [f"locked-{number:02}" for number in range(12)]
    for name in names:
        make_account(name, cap_nano=10**12)
        answered("op-1", account_id=name)
    goes = answered("op-1", account_id="other")
    with locked(Account, *names):
        for _ in range(20):
            with contextlib.suppress(OperationalError):  # nothing but waits: it backs off
                settlement_page(cursor=None, limit=50)
            if billing(goes) == ["settled"]:
                break
        assert billing(goes) == ["settled"]


def test_one_locked_alert_of_many_requests_starves_no_other_account(accounts: None) -> None:
    post.destination("ops")
    post.rule("request.unknown")
    first = dispatched("op-1").request_id
    Request.objects.update(lease_expires_at=past())
    assert expiry_page(limit=50).settled == 1
    for number in range(LOCK_WAITS_MAX + 2):
        dispatched(f"op-2-{number}")
    goes = dispatched("op-3", account_id="other").request_id
    Request.objects.exclude(id=first).update(lease_expires_at=past())
    with locked(AlertWindow, *AlertWindow.objects.values_list("pk", flat=True)):
        assert expiry_page(limit=50).settled == 1
        assert states(goes)[0] == "unknown"


# --- what shares a transaction ----------------------------------------------------------------


@pytest.fixture
def acme_locked(accounts: None) -> Iterator[None]:
    with locked(Account, "acme"):
        yield


async def test_who_shares_a_batch_with_a_locked_account_is_admitted_and_the_next_do_not_wait(
    acme_locked: None,
) -> None:
    async with running_kernel() as kernel:
        # One call occupies the writer, so that the next two share a batch.
        first = asyncio.create_task(kernel.gateway.admit(ask("op-1")))
        await asyncio.sleep(0)
        second = asyncio.create_task(kernel.gateway.admit(ask("op-2")))
        assert (await kernel.gateway.admit(ask("op-3", account_id="other"))).created
        for refused in (first, second):
            with pytest.raises(OperationalError) as lost:
                await refused
            assert is_lock_wait(lost.value)
        waits = asyncio.create_task(kernel.gateway.admit(ask("op-4")))
        for number in range(20):
            item = ask(f"op-5-{number}", account_id="other")
            assert (await kernel.gateway.admit(item)).created
        assert not waits.done(), "twenty others were admitted while it waited"
        with pytest.raises(OperationalError):
            await waits
        written = await look(kernel, lambda: set(Request.objects.values_list("account_id")))
        assert written == {("other",)}, "nothing of the locked account"


def test_an_account_without_a_cap_is_admitted_while_it_is_locked(accounts: None) -> None:
    Account.objects.filter(id="acme").update(cap_nano=None)
    with locked(Account, "acme"):
        (found,) = admit(items=[ask("op-1")])
    assert isinstance(found, Admission) and found.created


def test_a_locked_call_costs_no_other_its_lease(accounts: None) -> None:
    stays, renewed = dispatched("op-1").request_id, dispatched("op-2").request_id
    Request.objects.update(lease_expires_at=past())
    with locked(Request, stays):
        renew_leases(owner=OWNER, request_ids=[stays, renewed])
        assert [row_of(each).lease_expires_at > clock.db_now() for each in (stays, renewed)] == [
            False,
            True,
        ]


# --- the passes -------------------------------------------------------------------------------


def test_a_locked_request_keeps_no_other_lease_from_ending(accounts: None) -> None:
    waits, goes = dispatched("op-1").request_id, dispatched("op-2").request_id
    Request.objects.update(lease_expires_at=past())
    with locked(Request, waits):
        assert expiry_page(limit=50).settled == 1
        assert (states(waits)[0], states(goes)[0]) == ("dispatched", "unknown")
    assert expiry_page(limit=50).settled == 1
    assert states(waits)[0] == "unknown"


def test_a_locked_alert_of_one_account_keeps_no_lease_of_another_from_ending(
    accounts: None,
) -> None:
    post.destination("ops")
    post.rule("request.unknown")
    tells = dispatched("op-1").request_id
    Request.objects.update(lease_expires_at=past())
    assert expiry_page(limit=50).settled == 1
    waits, goes = dispatched("op-2").request_id, dispatched("op-3", account_id="other").request_id
    Request.objects.exclude(id=tells).update(lease_expires_at=past())
    with locked(AlertWindow, *AlertWindow.objects.values_list("pk", flat=True)):
        report = expiry_page(limit=50)
        assert (report.scanned, report.settled, report.deferred) == (2, 1, 1)
        assert (states(waits)[0], states(goes)[0]) == ("dispatched", "unknown")


def test_a_locked_question_keeps_no_other_from_expiring(accounts: None) -> None:
    waits, goes = one("req-1"), one("req-2")
    let_expire(waits)
    let_expire(goes)
    with locked(Approval, waits.id):
        assert approvals.expire_page(limit=10).settled == 1
        assert dict(Approval.objects.values_list("id", "state")) == {
            waits.id: "open",
            goes.id: "expired",
        }
    assert approvals.expire_page(limit=10).settled == 1


def test_a_locked_continuation_keeps_no_other_from_being_carried(accounts: None) -> None:
    waits, goes = one("req-1"), one("req-2")
    for approval in (waits, goes):
        carried(approval, decision="denied")
    Continuation.objects.update(state="owed")
    make_due(waits, goes)
    first, second = sorted([waits.id, goes.id])
    with locked(Continuation, first):
        report = approvals.continuation_page(store=STORE)(limit=10)
        assert (report.scanned, report.settled) == (2, 1)
        assert Continuation.objects.get(approval_id=second).state != "owed"


def test_a_locked_message_keeps_no_other_from_being_reclaimed(accounts: None) -> None:
    post.destination("shop")
    waits, goes = post.queued(2, to="shop")
    post.take()
    Notification.objects.update(lease_expires_at=past())
    with locked(Notification, waits):
        assert delivery_recovery.reclaim_page(limit=10).settled == 1
        assert dict(Notification.objects.values_list("id", "state")) == {
            waits: "sending",
            goes: "queued",
        }
    assert delivery_recovery.reclaim_page(limit=10).settled == 1


def test_a_locked_destination_keeps_no_message_of_another_from_being_reclaimed(
    accounts: None,
) -> None:
    post.destination("shop")
    post.destination("zoo")
    (waits,), (goes,) = post.queued(1, to="shop"), post.queued(1, to="zoo")
    post.take()
    Notification.objects.update(lease_expires_at=past())
    with locked(Destination, "shop"):
        report = delivery_recovery.reclaim_page(limit=10)
        assert (report.settled, report.deferred) == (1, 1)
        assert dict(Notification.objects.values_list("id", "state")) == {
            waits: "sending",
            goes: "queued",
        }


def test_a_locked_job_keeps_no_other_from_going_on(accounts: None) -> None:
    waits, goes = running("req-1"), running("req-2")
    for job in (waits, goes):
        Job.objects.filter(id=job.id).update(
            state="waiting", waiting_reason=Waiting.MODEL_UNKNOWN, owner="", due_at=past()
        )
    with locked(Job, waits.id):
        report = recovery_page(store=STORE)(limit=10)
        assert (report.settled, report.failed) == (1, 0)
        assert dict(Job.objects.values_list("id", "state")) == {
            waits.id: "waiting",
            goes.id: "queued",
        }
    assert recovery_page(store=STORE)(limit=10).settled == 1


@pytest.fixture
def two_jobs(accounts: None) -> Iterator[list[Fence]]:
    """The fences of two running jobs, of which the first is locked."""
    jobs = [running("req-1"), running("req-2")]
    with locked(Job, jobs[0].id):
        yield [job.fence for job in jobs]


async def test_a_locked_job_costs_no_other_of_its_worker_the_lease(two_jobs: list[Fence]) -> None:
    runs = [SimpleNamespace(held_until=0.0, lost=False) for _ in two_jobs]
    async with running_kernel() as kernel:
        with mock.patch.object(kernel.worker, "_running", dict(zip(two_jobs, runs, strict=True))):
            await kernel.worker._renew(two_jobs)
    assert [run.held_until > 0 for run in runs] == [False, True]
    assert not any(run.lost for run in runs), "nobody knows that of the locked one"


@pytest.fixture
def operations(accounts: None) -> tuple[Operation, Operation]:
    """Two that replay a dead letter each."""
    prints = ("a" * 32, "b" * 32)
    for one_print in prints:
        place.many(1, fingerprint=one_print)
    first, second = (place.running(fingerprint=one_print) for one_print in prints)
    return first, second


def operation_states(operations: tuple[Operation, Operation]) -> list[str]:
    return [place.reread(row).state for row in operations]


def test_a_locked_operation_keeps_no_other_from_being_worked_off(
    operations: tuple[Operation, Operation],
) -> None:
    with locked(Operation, operations[0].id):
        place.work_off(place.worker())
        assert operation_states(operations) == ["running", "done"]
    place.work_off(place.worker())
    assert operation_states(operations) == ["done", "done"]


def test_a_locked_item_keeps_no_other_operation_from_being_worked_off(
    operations: tuple[Operation, Operation],
) -> None:
    item = DeadLetter.objects.get(error_fingerprint="a" * 32)
    worker = place.worker()
    with locked(DeadLetter, item.id):
        place.work_off(worker)
        assert operation_states(operations) == ["running", "done"]
    place.work_off(worker)
    assert operation_states(operations) == ["done", "done"]
    assert place.counts_of(operations[0]) == (1, 0, 0)


@pytest.fixture
def counters_locked(accounts: None) -> Iterator[list[str]]:
    ids = [answered(f"op-{number}") for number in range(3)]
    PassStatus.objects.create(name="settlement", owner="krn_gone", updated_at=past())
    with locked(PassStatus, "settlement"):
        yield ids


async def test_a_pass_whose_counters_are_locked_does_its_work_without_them(
    counters_locked: list[str],
) -> None:
    async with running_kernel() as kernel:
        await kernel.run_pass("settlement")
        assert all(each.failures == 0 for each in kernel.passes)
        assert await look(kernel, lambda: billing(*counters_locked)) == ["settled"] * 3
        owner = await look(kernel, lambda: PassStatus.objects.get(name="settlement").owner)
        assert owner == "krn_gone", "its row was locked"


def test_a_cap_holds_while_another_account_is_locked(accounts: None) -> None:
    Account.objects.filter(id="other").update(cap_nano=1)
    with locked(Account, "acme"):
        (refused,) = admit(items=[ask("op-1", account_id="other")])
    assert isinstance(refused, CapReached)
