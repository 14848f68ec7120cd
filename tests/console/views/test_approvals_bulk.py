"""Several decisions at once: listed first, then exactly these, one answer per row."""

import re

from django.urls import reverse

from kernel.models import Approval, AuditRow
from tests.support import work_data
from tests.support.pages import form_to


def row_of(approval_id):
    return Approval.objects.get(id=approval_id)


def decisions_of(approval_id):
    rows = AuditRow.objects.filter(subject=f"approval:{approval_id}", action="approval.decided")
    return list(rows)


def test_bulk_lists_first_then_decides_exactly_these_and_answers_row_by_row(desk, approver):
    ids = [work_data.refund(f"order-{number}").approval_ids[0] for number in range(4)]
    work_data.decide(ids[0], "denied", by="olga")
    address = reverse("approvals-bulk")
    page = approver.get(address, {"decision": "approved", "id": ids[:3]}).text
    assert "Approve 2 calls?" in page and "1 is left out" in page
    form = form_to(page, address)
    items = re.findall(r'name="item" value="([^"]+)"', page)
    assert len(items) == 2
    work_data.decide(ids[2], "denied", by="olga")  # between the page and the act
    data = {**form.fields, "item": items, "reason": "Checked."}
    answer = approver.post(address, data)
    assert answer.status_code == 200 and "1 of 2 done" in answer.text
    assert "Not done" in answer.text and "olga" in answer.text
    states = [row_of(one).state for one in ids]
    assert states == ["denied", "approved", "denied", "open"]
    again = approver.post(address, data)
    assert "1 of 2 done" in again.text and len(decisions_of(ids[1])) == 1


def test_bulk_needs_a_reason_where_one_is_high_risk(desk, approver):
    amounts = {"order-1": 9, "order-2": 900}
    ids = [work_data.refund(*each).approval_ids[0] for each in amounts.items()]
    address = reverse("approvals-bulk")
    page = approver.get(address, {"decision": "denied", "id": ids}).text
    items = re.findall(r'name="item" value="([^"]+)"', page)
    data = {**form_to(page, address).fields, "item": items, "reason": ""}
    answer = approver.post(address, data)
    assert answer.status_code == 422 and {row_of(one).state for one in ids} == {"open"}


def test_bulk_without_a_tick_leads_back_and_says_so(desk, approver):
    answer = approver.get(reverse("approvals-bulk"), {"decision": "approved"}, follow=True)
    assert "Nothing was ticked" in answer.text
    assert approver.get(reverse("approvals-bulk"), {"decision": "yes"}).status_code == 400
