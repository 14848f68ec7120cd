"""The page of a question follows its job to the end, and its form says when it is too late (C2)."""

import re

import pytest
from django.urls import reverse

from kernel.models import Approval
from tests.console.views.conftest import rendered, send
from tests.support import work_data

TO_STATE = {"HX-Request": "true", "HX-Target": "state", "HX-Polling": "true"}
TO_DECIDE = {"HX-Request": "true", "HX-Target": "decide"}


@pytest.fixture
def asked(desk):
    """A job with one open question of medium risk."""
    return work_data.refund("order-1")


def poll_of(text):
    """The address that a part asks again by itself; '' when it rests."""
    found = re.search(r'data-poll="\d+" hx-get="([^"]+poll=1[^"]+)"', text)
    return found[1].replace("&amp;", "&") if found else ""


def note(text, name):
    """The words of one note beside the question, which a poll's answer puts in place."""
    found = re.search(rf'<p id="{name}-now" class="section-note"([^>]*)>(.*?)</p>', text)
    assert found, f"no note about the {name}"
    assert ("hx-swap-oob" in found[1]) == ("<html" not in text)
    return " ".join(re.sub(r"<[^>]+>", " ", found[2]).split())


def test_the_page_is_live_until_its_job_has_ended_and_each_answer_carries_the_jobs_state(
    asked, approver
):
    page = approver.get(reverse("approval", args=asked.approval_ids)).text
    assert (note(page, "job"), note(page, "question")) == ("Waiting approval", "Open")
    work_data.decide(asked.approval_ids[0], "approved")
    part = approver.get(poll_of(page), headers=TO_STATE).text
    assert (note(part, "job"), note(part, "question")) == ("Queued", "Approved")
    assert "data-announce" in part
    record = work_data.send(asked.job_id)
    part = approver.get(poll_of(part), headers=TO_STATE).text
    assert note(part, "job") == "Running" and "data-announce" not in part
    work_data.answer_call(record)
    part = approver.get(poll_of(part), headers=TO_STATE).text
    assert note(part, "job") == "Running", "the call has its answer, the job goes on"
    last = poll_of(part)
    assert last and approver.get(last, headers=TO_STATE).status_code == 204
    work_data.finish(record)
    part = approver.get(last, headers=TO_STATE).text
    assert note(part, "job") == "Done"
    assert not poll_of(part)


def test_the_page_rests_when_a_person_has_to_act_and_no_other_part_gets_its_notes(asked, approver):
    work_data.decide(asked.approval_ids[0], "approved")
    address = reverse("approval", args=asked.approval_ids)
    before = poll_of(approver.get(address).text)
    work_data.lose_worker(work_data.send(asked.job_id))
    assert not poll_of(approver.get(address).text)
    assert "job-now" not in approver.get(before, headers=TO_DECIDE).text


def test_a_question_whose_time_is_over_stays_live_until_its_job_is_told(asked, approver):
    work_data.late(asked.approval_ids[0])
    page = approver.get(reverse("approval", args=asked.approval_ids)).text
    assert note(page, "question") == "Expired" and poll_of(page)


@pytest.mark.parametrize("htmx", [False, True])
def test_a_decided_question_has_a_heading_that_asks_nothing(asked, approver, htmx):
    (approval_id,) = asked.approval_ids
    address = reverse("approval-approve", args=[approval_id])
    assert heading(approver.get(address).text) == "Approve this?"
    form = rendered(approver, "approval-approve", approval_id)
    work_data.decide(approval_id, "denied", by="olga")
    if htmx:
        answer = approver.post(form.action, form.fields, headers=TO_DECIDE)
        assert answer.status_code == 409 and "hx-swap-oob" in answer.text
        assert heading(answer.text) == "Nothing to decide any more"
    else:
        assert heading(send(approver, form).text) == "Nothing to decide any more"
        assert heading(approver.get(address).text) == "Nothing to decide any more"


def test_who_cannot_decide_it_is_not_asked_to(asked, approver):
    (approval_id,) = asked.approval_ids
    Approval.objects.filter(id=approval_id).update(requested_by="user:approver")
    page = approver.get(reverse("approval-deny", args=[approval_id])).text
    assert heading(page) == "Not yours to decide"


def heading(text):
    """What the page asks in its first line."""
    (found,) = re.findall(r'<span id="decide-heading"[^>]*>([^<]*)</span>', text)
    return found
