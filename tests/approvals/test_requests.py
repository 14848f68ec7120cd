"""Questions: opened all or none, bounded, voided with their job, replaced, used once."""

import os
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from kernel import approvals, clock
from kernel.conf import override
from kernel.errors import Conflict, KernelError, NotFound
from kernel.models import Approval, AuditRow, Job
from tests.approvals.place import (
    AGENT,
    BEN,
    Boom,
    acts_of,
    asked,
    carried,
    consume,
    everything,
    in_tx,
    job_of,
    let_expire,
    one,
    park,
    question,
    reread,
    running,
    voided,
)

pytestmark = pytest.mark.usefixtures("kernel_db")


def approved(**fields: Any) -> Approval:
    row = one(**fields)
    carried(row)
    return reread(row)


def renew(approval: Approval, *, number: int = 0, **fields: Any) -> Approval:
    asks = question(number, **fields)
    act = partial(
        approvals.replace_in_tx, approval_id=approval.id, question=asks, reason="the tool changed"
    )
    return in_tx(act=act)


def test_a_question_is_bound_to_job_request_tool_version_and_arguments() -> None:
    asks = question(7, risk="high", tool_version=3)
    job = running("req-9")
    (row,) = park(job, asks)
    found = reread(row)
    assert (found.job_id, found.request_id, found.account_id) == (job.id, "req-9", "acme")
    assert (found.tool, found.tool_version, found.risk) == ("refund", 3, "high")
    assert found.arguments_text == asks.canonical.text == '{"amount":100,"order":"o-7"}'
    assert (found.arguments_sha256, found.canonical_version) == (asks.canonical.sha256, 1)
    assert (found.requested_by, found.tool_call_id) == ("token:tok_app", "call.1.7")
    assert (found.state, found.decision, found.decision_id) == ("open", "", None)
    assert found.expires_at - found.created_at == timedelta(hours=1)
    assert acts_of(row) == ["opened"]
    assert job_of(row).state == "waiting"


def test_a_job_waits_exactly_when_its_questions_are_stored() -> None:
    """Killed between the two: both or neither, because they are one transaction."""
    job = running()
    broken = replace(question(1), tool="not an id")
    with pytest.raises(KernelError):
        park(job, question(0), broken)
    assert Approval.objects.count() == 0 and Job.objects.get().state == "running"
    assert not AuditRow.objects.filter(action="approval.opened").exists()


@pytest.mark.parametrize("zone", ["America/Sao_Paulo", "UTC", "Asia/Kolkata", "Pacific/Kiritimati"])
def test_the_window_is_counted_by_the_database_in_utc_whatever_the_zone(
    zone: str,
) -> None:
    before = os.environ.get("TZ")
    try:
        os.environ["TZ"] = zone
        time.tzset()
        row = reread(one(expires_in_seconds=7200))
    finally:
        os.environ.pop("TZ")
        os.environ.update({"TZ": before} if before is not None else {})
        time.tzset()
    left = row.expires_at - clock.db_now()
    assert timedelta(seconds=7190) < left <= timedelta(seconds=7200)
    assert row.expires_at.isoformat().endswith("+00:00")


def test_a_job_asks_a_bounded_number_of_questions() -> None:
    job = running()
    with override(job_approvals_count_max=2):
        with pytest.raises(Conflict) as caught:
            park(job, question(0), question(1), question(2))
        assert caught.value.error_code == "too_many_questions"
        assert Approval.objects.count() == 0
        assert len(park(job, question(0), question(1))) == 2


def test_a_call_is_asked_about_a_bounded_number_of_times() -> None:
    row = one()
    for number in (2, 3):
        newer = renew(row, number=number)
        assert newer.supersedes_id == row.id
        assert (reread(row).state, newer.state) == ("cancelled", "open")
        row = newer
    before = everything()
    with pytest.raises(Conflict) as caught:
        renew(row, number=4)
    assert caught.value.error_code == "too_many_questions"
    assert everything() == before


def test_what_replaces_a_grant_is_undecided_and_keeps_who_asked() -> None:
    old = approved(request_id="req-3")
    new = renew(old, number=5, tool_version=2)
    assert (new.state, new.decision, new.tool_version) == ("open", "", 2)
    assert (new.request_id, new.requested_by, new.job_id) == (
        old.request_id,
        old.requested_by,
        old.job_id,
    )
    assert acts_of(old)[-1] == "cancelled"
    assert reread(old).decision == "approved", "the decision stays as it was recorded"
    with pytest.raises(Conflict) as caught:
        consume(old)
    assert caught.value.error_code == "not_approved"


@pytest.mark.parametrize("how", ["consumed", "denied", "cancelled", "expired"])
def test_what_has_ended_is_not_replaced(how: str) -> None:
    row = one()
    if how == "cancelled":
        voided(row)
    elif how == "expired":
        let_expire(row)
        approvals.expire_page(limit=10)
    else:
        carried(row, "denied" if how == "denied" else "approved")
        if how == "consumed":
            consume(row)
    before = everything()
    with pytest.raises(Conflict) as caught:
        renew(row)
    assert (caught.value.error_code, caught.value.details["state"]) == ("not_replaceable", how)
    assert everything() == before


def test_cancelling_a_job_voids_its_questions_and_grants_and_nothing_else() -> None:
    rows = asked(count=3)
    (other,) = asked("req-2")
    carried(rows[0], "approved")
    voided(rows[0])
    assert [reread(row).state for row in rows] == ["cancelled"] * 3
    assert [acts_of(row)[-1] for row in rows] == ["cancelled"] * 3
    assert reread(other).state == "open"
    assert job_of(rows[0]).state == "cancelled"
    assert (
        in_tx(act=partial(approvals.void_in_tx, job_id=rows[0].job_id, actor=BEN, reason="")) == 0
    )


def test_one_question_is_cancelled_when_its_call_is_not_made() -> None:
    rows = asked(count=2)
    cancel = partial(approvals.cancel_in_tx, approval_id=rows[0].id, actor=BEN, reason="no tool")
    assert in_tx(act=cancel)
    assert [reread(row).state for row in rows] == ["cancelled", "open"]
    before = everything()
    assert not in_tx(act=cancel)
    assert everything() == before


def test_a_job_is_cancelled_with_its_questions_or_not_at_all() -> None:
    row = one()
    before = everything()

    def broken() -> None:
        approvals.void_in_tx(job_id=row.job_id, actor=BEN, reason="stop")
        raise Boom

    with pytest.raises(Boom):
        in_tx(act=broken)
    assert everything() == before


def test_a_grant_is_used_once_from_exactly_the_approved_text() -> None:
    row = approved()
    grant = consume(row)
    assert grant.arguments_text == row.arguments_text
    assert (grant.approval_id, grant.decision_id) == (row.id, f"dec-{row.id}")
    found = reread(row)
    assert found.state == "consumed" and found.consumed_at is not None
    assert acts_of(row)[-1] == "consumed"
    before = everything()
    with pytest.raises(Conflict) as caught:
        consume(row)
    assert (caught.value.error_code, caught.value.details["state"]) == ("not_approved", "consumed")
    assert everything() == before


def test_a_grant_does_not_allow_another_call() -> None:
    row = approved()
    other = approvals.canonical({"amount": 50, "order": "o-0"}).sha256
    before = everything()
    for fields in ({"sha256": other}, {"tool_version": 2}, {"sha256": ""}):
        with pytest.raises(Conflict) as caught:
            consume(row, **fields)
        assert caught.value.error_code == "changed"
    assert everything() == before


def test_a_text_that_was_changed_in_the_table_is_not_executed() -> None:
    row = approved()
    Approval.objects.filter(id=row.id).update(arguments_text='{"amount":9999,"order":"o-0"}')
    with pytest.raises(Conflict) as caught:
        consume(row)
    assert caught.value.error_code == "changed"


@pytest.mark.parametrize("state", ["open", "denied", "expired", "cancelled"])
def test_without_an_approval_nothing_is_used(state: str) -> None:
    row = one()
    if state == "denied":
        carried(row, "denied")
    elif state == "expired":
        let_expire(row)
        approvals.expire_page(limit=10)
    elif state == "cancelled":
        voided(row)
    with pytest.raises(Conflict) as caught:
        consume(row)
    assert caught.value.error_code == ("expired" if state == "expired" else "not_approved")
    assert caught.value.details["state"] == reread(row).state == state


def test_a_grant_that_was_approved_in_time_is_not_used_too_late() -> None:
    """Approved a second before its end, dispatched a minute after: the dispatch looks again."""
    row = approved()
    let_expire(row)
    with pytest.raises(Conflict) as caught:
        consume(row)
    assert caught.value.error_code == "expired"
    for _ in range(2):
        in_tx(act=partial(approvals.expire_grant_in_tx, approval_id=row.id))
    found = reread(row)
    assert (found.state, found.decision, found.consumed_at) == ("expired", "approved", None)
    assert acts_of(row)[-2:] == ["carried_through", "expired"]


def test_a_late_grant_is_expired_in_the_very_transaction_that_found_it_late() -> None:
    row = approved()
    let_expire(row)

    def dispatch() -> None:
        try:
            approvals.consume_in_tx(approval_id=row.id, sha256=row.arguments_sha256, tool_version=1)
        except Conflict:
            approvals.expire_grant_in_tx(approval_id=row.id)

    in_tx(act=dispatch)
    assert reread(row).state == "expired"


@pytest.mark.parametrize("state", ["open", "approved", "consumed"])
def test_what_is_not_late_or_not_unused_does_not_expire_at_dispatch(state: str) -> None:
    row = one() if state == "open" else approved()
    if state == "consumed":
        consume(row)
    if state != "approved":
        let_expire(row)
    with pytest.raises(Conflict) as caught:
        in_tx(act=partial(approvals.expire_grant_in_tx, approval_id=row.id))
    assert caught.value.error_code == "not_approved"


def test_a_grant_whose_call_sent_nothing_is_usable_again() -> None:
    row = approved()
    consume(row)
    give_back = partial(approvals.give_back_in_tx, approval_id=row.id)
    in_tx(act=give_back)
    found = reread(row)
    assert (found.state, found.consumed_at) == ("approved", None)
    with pytest.raises(Conflict) as caught:
        in_tx(act=give_back)
    assert caught.value.error_code == "not_consumed"
    assert consume(row).approval_id == row.id
    assert acts_of(row)[-3:] == ["consumed", "given_back", "consumed"]


def test_verbs_that_join_a_transaction_do_not_run_without_one() -> None:
    row = approved()
    calls = (
        partial(approvals.void_in_tx, job_id=row.job_id, actor=AGENT, reason=""),
        partial(approvals.consume_in_tx, approval_id=row.id, sha256="x", tool_version=1),
        partial(approvals.give_back_in_tx, approval_id=row.id),
        partial(approvals.expire_grant_in_tx, approval_id=row.id),
        partial(approvals.replace_in_tx, approval_id=row.id, question=question(), reason=""),
    )
    for call in calls:
        with pytest.raises(KernelError, match="needs a transaction"):
            call()


def test_what_does_not_exist_is_not_found() -> None:
    for call in (
        partial(approvals.give_back_in_tx, approval_id="apr_none"),
        partial(approvals.expire_grant_in_tx, approval_id="apr_none"),
        partial(approvals.replace_in_tx, approval_id="apr_none", question=question(), reason=""),
        partial(approvals.consume_in_tx, approval_id="apr_none", sha256="x", tool_version=1),
    ):
        with pytest.raises(NotFound):
            in_tx(act=call)
