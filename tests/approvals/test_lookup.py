"""Reads of approvals: in the caller's account only; the last call like it."""

from datetime import timedelta

import pytest

from kernel import approvals
from kernel.errors import NotFound
from kernel.models import Approval
from tests.approvals.place import asked, carried, one, order, reread

pytestmark = pytest.mark.usefixtures("kernel_db")


def test_an_approval_is_found_in_its_own_account_only() -> None:
    row = one()
    assert approvals.get_approval(approval_id=row.id) == row
    assert approvals.get_approval(approval_id=row.id, account_id="acme") == row
    for fields in ({"approval_id": row.id, "account_id": "other"}, {"approval_id": "apr_none"}):
        with pytest.raises(NotFound):
            approvals.get_approval(**fields)


def test_a_job_lists_its_questions_in_order() -> None:
    rows = asked(count=3)
    one("req-2")
    found = approvals.approvals_of_job(job_id=rows[0].job_id)
    assert [row.id for row in found] == sorted(row.id for row in rows)
    assert approvals.approvals_of_job(job_id="") == []


def test_a_continuation_is_there_from_the_decision_on() -> None:
    row = one()
    assert approvals.continuation_of(approval_id=row.id) is None
    approvals.decide(order=order(row))
    found = approvals.continuation_of(approval_id=row.id)
    assert found is not None and found.state == "owed"


def test_the_last_approved_call_of_the_same_tool_and_account_is_compared_with() -> None:
    first, second, denied = one("req-1"), one("req-2"), one("req-3")
    foreign = one("req-4", account_id="other")
    other_tool = one("req-5", tool="email")
    asks = one("req-6")
    assert approvals.last_approved_like(approval=asks) is None
    for row in (first, second, foreign, other_tool):
        carried(row)
    carried(denied, "denied")
    Approval.objects.filter(id=first.id).update(
        decided_at=reread(second).decided_at - timedelta(days=1)
    )
    assert approvals.last_approved_like(approval=asks) == second
    assert approvals.last_approved_like(approval=reread(second)) == first
    assert approvals.last_approved_like(approval=reread(first)) is None
