"""Recovery: leases that ended, retention that is over; nothing is ever sent again (A9, A17)."""

from datetime import timedelta

import pytest

from kernel import clock, usage
from kernel.conf import override
from kernel.errors import Gone, LostRace, NotFound
from kernel.models import Body, LedgerRow, Request
from kernel.runtime.maintenance import PageReport
from kernel.usage.bodies import read_body
from kernel.usage.dispatch import dispatch, order
from kernel.usage.recovery import expire_lease, expiry_page, purge_bodies, renew_leases
from tests.support.product import (
    admitted,
    ask,
    assert_invariants,
    make_account,
    make_service,
)
from tests.usage.flow import OWNER, answered, at_once, dispatched, outcome_of, row_of, saved, states


@pytest.fixture
def acme(kernel_db: None) -> None:
    make_account(cap_nano=10**12)
    make_service(max_output_tokens=100)


def end_lease(*request_ids: str) -> None:
    past = clock.now() - timedelta(hours=1)
    Request.objects.filter(id__in=request_ids).update(lease_expires_at=past)


# --- leases -----------------------------------------------------------------------------------


def test_a_dispatched_request_whose_lease_ended_becomes_unknown(acme: None) -> None:
    fence = dispatched()
    assert expiry_page(limit=10).scanned == 0, "not before its lease has ended"
    end_lease(fence.request_id)
    report = expiry_page(limit=10)
    assert (report.scanned, report.settled, report.cursor) == (1, 1, None)
    row = row_of(fence.request_id)
    assert states(row) == ("unknown", "pending", "no_usage")
    assert row.error_code == "owner_lost"
    assert row.hold_nano > 0, "its hold stays"
    assert_invariants()


def test_what_was_seen_unknown_is_never_dispatched_again(acme: None) -> None:
    fence = dispatched()
    end_lease(fence.request_id)
    expiry_page(limit=10)
    (refusal,) = dispatch(items=[order(request_id=fence.request_id, owner="krn-2")])
    assert isinstance(refusal, LostRace)
    assert expiry_page(limit=10).scanned == 0


def test_an_admitted_request_is_left_alone(acme: None) -> None:
    row = admitted(ask())
    expiry_page(limit=10)
    assert states(row) == ("admitted", "open", "")


def test_a_renewed_lease_does_not_end(acme: None) -> None:
    fence = dispatched()
    end_lease(fence.request_id)
    renew_leases(owner=OWNER, request_ids=[fence.request_id])
    assert expiry_page(limit=10).scanned == 0


def test_expiring_goes_page_by_page_to_the_end(acme: None) -> None:
    ids = [dispatched(f"op-{number}").request_id for number in range(7)]
    end_lease(*ids)
    reports: list[PageReport] = []
    cursor = None
    while True:
        reports.append(expiry_page(cursor=cursor, limit=3))
        cursor = reports[-1].cursor
        if cursor is None:
            break
    assert [report.settled for report in reports] == [3, 3, 1]
    assert {states(each)[0] for each in ids} == {"unknown"}


def test_a_read_sees_the_end_of_a_lease_too(acme: None) -> None:
    fence = dispatched()
    assert not expire_lease(request_id=fence.request_id)
    end_lease(fence.request_id)
    assert expire_lease(request_id=fence.request_id)
    assert not expire_lease(request_id=fence.request_id), "only once"
    assert states(fence.request_id)[0] == "unknown"


def test_expiry_and_result_at_once_never_lose_the_result(acme: None) -> None:
    for number in range(5):
        fence = dispatched(f"op-{number}")
        end_lease(fence.request_id)
        at_once(
            lambda: expiry_page(limit=10),
            lambda fence=fence: saved(outcome_of(fence)),
        )
        assert states(fence.request_id)[0] == "complete", "before or after: the fence may save"
    assert_invariants()


# --- retention --------------------------------------------------------------------------------


def grow_old(*request_ids: str, days: int = 31) -> None:
    """Move all times of these requests into the past."""
    for row in Request.objects.filter(id__in=request_ids):
        for name in ("admitted_at", "dispatched_at", "result_at", "settled_at", "updated_at"):
            if value := getattr(row, name):
                setattr(row, name, value - timedelta(days=days))
        Request.objects.filter(id=row.id).update(
            admitted_at=row.admitted_at,
            dispatched_at=row.dispatched_at,
            result_at=row.result_at,
            settled_at=row.settled_at,
            updated_at=row.updated_at,
        )


def purge_all(limit: int = 200) -> int:
    purged, cursor = 0, None
    while True:
        report = purge_bodies(cursor=cursor, limit=limit)
        purged, cursor = purged + report.settled, report.cursor
        if cursor is None:
            return purged


def test_bodies_go_after_their_retention_metering_and_ledger_stay(acme: None) -> None:
    old, young = answered("old"), answered("young")
    usage.settle(items=[old, young])
    grow_old(old)
    assert purge_all() == 1
    row = row_of(old)
    assert row.purged_at is not None
    assert not Body.objects.filter(request_id=old).exists()
    assert row.usage_text
    assert row.result_sha256
    assert LedgerRow.objects.filter(charge_of=old).exists()
    assert read_body(request_id=young, kind="result") is not None
    assert row_of(young).purged_at is None
    assert_invariants()


def test_a_purged_result_is_gone_and_says_what_to_do(acme: None) -> None:
    old = answered()
    grow_old(old)
    purge_all()
    with pytest.raises(Gone) as refusal:
        usage.result_body(request=row_of(old))
    assert refusal.value.error_code == "response_expired"
    assert "new operation id" in refusal.value.way_out


def test_a_request_without_a_result_says_so(acme: None) -> None:
    with pytest.raises(NotFound, match="no result"):
        usage.result_body(request=admitted(ask()))


def test_purging_again_changes_nothing(acme: None) -> None:
    old = answered()
    grow_old(old)
    assert purge_all() == 1
    before = row_of(old).purged_at
    assert purge_all() == 0
    assert row_of(old).purged_at == before


def test_what_has_not_ended_keeps_its_body_and_never_keeps_others_waiting(acme: None) -> None:
    """Many old requests that are not over lie in front of one that is."""
    waiting = [admitted(ask(f"waiting-{number}")).id for number in range(8)]
    unknown = dispatched("unknown").request_id
    end_lease(unknown)
    expiry_page(limit=10)
    ended = answered("ended")
    grow_old(*waiting, unknown, ended, days=40)
    assert purge_all(limit=3) == 1
    assert row_of(ended).purged_at is not None
    for request_id in (*waiting, unknown):
        assert read_body(request_id=request_id, kind="request") is not None
    assert_invariants()


def test_a_purge_stops_at_the_young_ones(acme: None) -> None:
    for number in range(10):
        answered(f"op-{number}")
    report = purge_bodies(limit=5)
    assert (report.scanned, report.cursor) == (5, None)


def test_the_retention_is_a_setting(acme: None) -> None:
    old = answered()
    grow_old(old, days=3)
    assert purge_all() == 0
    with override(result_retention_days=2):
        assert purge_all() == 1
