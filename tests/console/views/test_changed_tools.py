"""A tool that changed after it was asked about: what was asked, what was sent, what comes (C1)."""

import json
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from console.queries.tool_versions import Address, addresses_of
from kernel import jobs
from kernel.jobs import journal
from kernel.models import Approval, AuditRow, Tool, ToolCall
from tests.console.views.conftest import rendered, send
from tests.support import work_data
from tests.support.pages import doubled_ids, policy_faults

OLD, NEW = "shop.example.com", "shop2.example.com"
NOT_SENT = "Not sent: the tool changed"
WARNING = "The tool changed since this was asked"


def change(tool_id="refund_order", **fields):
    """The tool's next version; at a new address unless told otherwise."""
    fields = fields or {"url": f"https://{NEW}/orders/{{order_id}}/refunds"}
    row = Tool.objects.get(id=tool_id)
    jobs.change_tool(tool_id=tool_id, actor=work_data.OLGA, seen_version=row.version, **fields)


def asked_anew(job_id):
    """What a worker does with a grant of an older version; the new question's id."""
    record = work_data.claim(job_id)
    held = journal.begin_call(store=work_data.STORE, fence=record.fence, call_id=f"{job_id}.1.0")
    assert held == journal.Held(journal.ASK, held.message)
    work_data.wait_for_approval(record, 1)
    return ToolCall.objects.get(job_id=job_id).approval_id


def wires(page):
    """The hosts that a page shows as addresses of calls, in order."""
    found = re.findall(r'class="wire-url">.*?<strong>(.*?)</strong>', page)
    return [re.sub("<[^>]*>", "", one) for one in found]


def approval_page(client, approval_id):
    page = client.get(reverse("approval", args=[approval_id])).text
    assert not policy_faults(page) + doubled_ids(page)
    return page


def call_page(client, job_id):
    page = client.get(reverse("call", args=[f"{job_id}.1.0"])).text
    assert not policy_faults(page) + doubled_ids(page)
    return page


def sent(request_id):
    """A refund that was approved, sent and answered."""
    one = work_data.refund(request_id)
    work_data.decide(one.approval_ids[0], "approved")
    work_data.answer(work_data.send(one.job_id))
    return one


# --- what was sent ------------------------------------------------------------------------------


def test_a_sent_call_keeps_the_address_of_its_version_on_both_pages(desk, approver):
    one = sent("order-1")
    change()
    change(effect="Refund {amount}.")
    page = approval_page(approver, one.approval_ids[0])
    assert wires(page) == [OLD] and NEW not in page
    assert WARNING not in page and NOT_SENT not in page and "replaces this one" not in page
    assert "The address of version 1; the tool is at version 3 now." in page
    page = call_page(approver, one.job_id)
    assert wires(page) == [OLD] and NEW not in page
    assert "What was sent" in page and "What is sent" not in page


def test_an_address_that_is_not_kept_is_not_claimed(desk, approver):
    one = sent("order-1")
    change()
    AuditRow.objects.filter(subject="tool:refund_order").delete()
    for page in (approval_page(approver, one.approval_ids[0]), call_page(approver, one.job_id)):
        text = "The address of version 1 is not known. The tool is at version 2 now, whose address"
        assert text in page and wires(page) == [NEW]
        assert page.index(text) < page.index('class="wire"')


@pytest.mark.parametrize("damage", ["act", "text", "offset"])
def test_a_trail_that_does_not_fit_the_tool_says_nothing_about_older_versions(desk, damage):
    change()
    first = AuditRow.objects.filter(subject="tool:refund_order", sequence=1)
    if damage == "act":
        first.update(action="tool.other")
    elif damage == "text":
        first.update(after_text="[]")
    else:
        Tool.objects.filter(id="refund_order").update(version=3)
    tool = Tool.objects.get(id="refund_order")
    found = addresses_of(tool, [1, tool.version])
    assert found == {tool.version: Address("POST", tool.url)}


def test_every_version_is_read_with_one_query_and_the_one_in_force_with_none(
    desk, django_assert_num_queries
):
    change()
    change(method="PUT")
    change(url="https://shop3.example.com/refunds")
    tool = Tool.objects.get(id="refund_order")
    with django_assert_num_queries(1):
        found = addresses_of(tool, [1, 2, 3])
    assert [(found[each].method, NEW in found[each].url) for each in (1, 2, 3)] == [
        ("POST", False),
        ("POST", True),
        ("PUT", True),
    ]
    with django_assert_num_queries(0):
        assert addresses_of(tool, [4]) == {4: Address("PUT", tool.url)}
        assert addresses_of(None, [1]) == {}


def test_the_pages_cost_the_same_after_one_change_and_after_many(desk, approver):
    one = sent("order-1")

    def cost():
        with CaptureQueriesContext(connection) as found:
            approval_page(approver, one.approval_ids[0])
            call_page(approver, one.job_id)
        return len(found)

    cost()
    change()
    few = cost()
    for number in range(6):
        change(effect=f"Refund {{amount}} {number}.")
    assert cost() == few


@pytest.mark.parametrize(
    ("state", "title"), [("proposed", "What is to be sent"), ("failed", "What was to be sent")]
)
def test_a_call_that_was_not_sent_does_not_say_it_was(desk, approver, state, title):
    one = work_data.refund("order-1")
    change()
    ToolCall.objects.filter(job_id=one.job_id).update(state=state)
    page = call_page(approver, one.job_id)
    assert title in page and "What was sent" not in page and wires(page) == [OLD]
    assert ("Nothing is sent under version 1 any more." in page) is (state == "proposed")


def test_a_call_of_an_unknown_tool_shows_no_version_and_no_address(desk, approver):
    one = work_data.refund("order-1")
    ToolCall.objects.filter(job_id=one.job_id).update(state="failed", tool_version=0)
    page = call_page(approver, one.job_id)
    assert "version 0" not in page and wires(page) == []


# --- before deciding ----------------------------------------------------------------------------


def test_an_open_question_of_an_older_version_says_what_approving_does(desk, approver):
    (approval_id,) = work_data.refund("order-1").approval_ids
    clean = approval_page(approver, approval_id)
    assert WARNING not in clean and "this exact call is sent once" in clean
    change()
    form = reverse("approval-approve", args=[approval_id])
    for page in (approval_page(approver, approval_id), approver.get(form).text):
        assert WARNING in page and "If you approve, this call is not sent" in page
        assert "asks anew under version 2" in page
        assert "is sent once" not in page and "What exactly will happen" not in page
        assert wires(page) == [NEW, OLD]  # the first as the one of version 2
        assert page.index("Version 2 goes to:") < page.index(NEW)
    denying = approver.get(reverse("approval-deny", args=[approval_id])).text
    assert "The job ends as refused" in denying and "Your approval is recorded" not in denying


def test_a_direct_call_of_an_older_version_is_asked_anew_when_its_agent_resumes(desk, approver):
    (approval_id,) = work_data.refund("order-1").approval_ids
    Approval.objects.filter(id=approval_id).update(job_id="")
    change()
    page = approval_page(approver, approval_id)
    assert "when the agent resumes, it is asked anew under version 2" in page
    assert "the job asks anew" not in page


def test_a_question_that_cannot_be_asked_anew_says_why(desk, approver):
    (approval_id,) = work_data.refund("order-1").approval_ids
    change(active=False)
    page = approval_page(approver, approval_id)
    assert "nothing is asked anew" in page and "The tool is not in use any more." in page
    assert "asks anew under" not in page
    answer = send(approver, rendered(approver, "approval-approve", approval_id), reason="x")
    landed = approver.get(answer["Location"]).text
    assert "tone-warn" in landed and "asks anew" not in landed


# --- after deciding -----------------------------------------------------------------------------


def test_approving_an_older_version_warns_and_leads_to_the_question_that_replaces_it(
    desk, approver
):
    one = work_data.refund("order-1")
    (approval_id,) = one.approval_ids
    change()
    answer = send(approver, rendered(approver, "approval-approve", approval_id), reason="x")
    assert answer.status_code == 303
    landed = approver.get(answer["Location"]).text
    flash = landed.split('id="flash"')[1].split("</main>")[0]
    assert "flash-item tone-warn" in flash and "flash-item tone-ok" not in flash
    assert "this call is not sent: the tool changed" in flash and "The job goes on." not in landed
    assert NOT_SENT in landed and "the new question shows up here" in landed
    new_id = asked_anew(one.job_id)
    page = approval_page(approver, approval_id)
    notice = page.split(NOT_SENT)[1].split("</p>\n</div>")[0]
    assert reverse("approval", args=[new_id]) in notice and "anew under version 2" in notice
    assert page.index(NOT_SENT) < page.index("Other questions of this job")
    assert WARNING not in page and wires(page) == [OLD]
    work_data.decide(new_id, "approved")
    work_data.answer(work_data.send(one.job_id))
    page = approval_page(approver, approval_id)
    assert "HTTP 201" not in page and "Never sent" in page  # the answer is the new question's
    page = approval_page(approver, new_id)
    assert "HTTP 201" in page and wires(page) == [NEW] and NOT_SENT not in page


def test_the_question_that_replaces_another_shows_how_the_tool_changed(desk, approver):
    one = work_data.refund("order-1")
    work_data.decide(one.approval_ids[0], "approved")
    change()
    page = approval_page(approver, asked_anew(one.job_id))
    table = page.split("Against the question it replaces")[1].split("</section>")[0]
    assert "Version of the tool" in table and "Address" in table
    assert f"https://{OLD}/" in table and f"https://{NEW}/" in table
    assert "The same arguments, character for character." in table
    assert WARNING not in page and "this exact call is sent once" in page


def test_an_unchanged_tool_is_approved_without_a_warning(desk, approver):
    (approval_id,) = work_data.refund("order-1").approval_ids
    answer = send(approver, rendered(approver, "approval-approve", approval_id), reason="x")
    page = approver.get(answer["Location"]).text
    assert "Approved. The job goes on." in page and NOT_SENT not in page


def test_denying_an_older_version_is_a_plain_denial(desk, approver):
    (approval_id,) = work_data.refund("order-1").approval_ids
    change()
    answer = send(approver, rendered(approver, "approval-deny", approval_id), reason="x")
    page = approver.get(answer["Location"]).text
    assert "Denied. Nothing is called." in page and NOT_SENT not in page and WARNING not in page


def test_a_grant_that_a_refused_sibling_voided_is_not_called_changed(desk, approver):
    one = work_data.refund("order-1")
    change()
    work_data.void(job_id=one.job_id)
    page = approval_page(approver, one.approval_ids[0])
    assert NOT_SENT not in page and WARNING not in page and "Cancelled" in page


# --- several at once ----------------------------------------------------------------------------


def test_a_changed_one_takes_no_part_in_approving_several_but_in_denying_them(desk, approver):
    ids = [work_data.refund(f"order-{number}").approval_ids[0] for number in range(2)]
    ids += work_data.ask("mail-1", [("send_mail", {"to": "kim", "subject": "x"})]).approval_ids
    change("send_mail", url="https://mail2.example.com/v1/messages")
    address = reverse("approvals-bulk")
    page = approver.get(address, {"decision": "approved", "id": ids}).text
    assert "Approve 2 calls?" in page and "Its tool changed since it was asked" in page
    page = approver.get(address, {"decision": "denied", "id": ids}).text
    assert "Deny 3 calls?" in page


def test_a_tool_that_changes_under_the_list_is_told_apart_in_the_results(desk, approver):
    (approval_id,) = work_data.refund("order-1").approval_ids
    address = reverse("approvals-bulk")
    page = approver.get(address, {"decision": "approved", "id": [approval_id]}).text
    items = re.findall(r'name="item" value="([^"]+)"', page)
    keys = dict(re.findall(r'name="(form_key|decision)" value="([^"]+)"', page))
    change()
    answer = approver.post(address, {**keys, "item": items, "reason": "x"})
    assert answer.status_code == 200
    assert "not sent: the tool changed since" in answer.text
    assert "Carried through." not in answer.text
    assert Approval.objects.get(id=approval_id).state == "approved"


def test_the_trail_holds_the_address_of_every_version(desk):
    change()
    rows = AuditRow.objects.filter(subject="tool:refund_order").order_by("sequence")
    hosts = [json.loads(row.after_text)["url"].split("/")[2] for row in rows]
    assert hosts == [OLD, NEW] and Tool.objects.get(id="refund_order").version == len(hosts)
