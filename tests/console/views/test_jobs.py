"""Jobs on screen: depth, holders, pauses, one job's steps, acts that ask first (D1-D4, L)."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from console.queries.jobs import jobs_of_request
from kernel.models import Approval, AuditRow, Job, Pause, Request, ToolCall
from kernel.usage import lookup
from tests.console.views.conftest import rendered, send
from tests.support import lives, work_data

IS_SQLITE = connection.vendor == "sqlite"
QUERIES_MAX = 19  # SQLite asks once per state, where the others have one UNION ALL


def uncertain_job():
    one = work_data.refund("order-1")
    work_data.decide(one.approval_ids[0], "approved")
    work_data.lose_worker(work_data.send(one.job_id))
    return one.job_id


def test_the_screen_shows_depth_holders_and_routes_in_constant_queries(desk, operator):
    work_data.submit("order-1")
    work_data.claim(work_data.submit("order-2").id, owner="wrk_alpha")
    work_data.park(work_data.submit("order-3").id)
    operator.get(reverse("jobs"))
    with CaptureQueriesContext(connection) as few:
        page = operator.get(reverse("jobs")).text
    assert "wrk_alpha" in page and "refunds" in page
    for number in range(4, 9):
        work_data.refund(f"order-{number}")
    with CaptureQueriesContext(connection) as many:
        operator.get(reverse("jobs"))
    assert len(many) == len(few) <= QUERIES_MAX
    assert not [one["sql"] for one in many if "input_text" in one["sql"]]


def test_filters_narrow_the_list_and_a_bad_one_is_400(desk, operator):
    queued, parked = work_data.submit("order-1").id, work_data.submit("order-2").id
    work_data.park(parked)
    page = operator.get(reverse("jobs"), {"state": "parked"}).text
    assert parked in page and queued not in page
    page = operator.get(reverse("jobs"), {"account": work_data.ACCOUNT, "state": "queued"}).text
    assert queued in page and parked not in page
    assert operator.get(reverse("jobs"), {"state": "asleep"}).status_code == 400


def test_a_job_is_found_by_its_callers_request_id_exactly(desk, operator):
    mine, other = work_data.submit("order-1").id, work_data.submit("order-12").id
    page = operator.get(reverse("jobs"), {"request": "order-1"}).text
    assert mine in page and other not in page
    assert operator.get(reverse("jobs"), {"request": "order-1", "state": "done"}).status_code == 200
    assert operator.get(reverse("jobs"), {"request": "no such id"}).status_code == 400
    none = operator.get(reverse("jobs"), {"request": "order-1", "account": "acme-prod"})
    assert mine in none.text
    none = operator.get(reverse("jobs"), {"request": "order-9"}).text
    assert "No job matches these filters" in none
    found = operator.get(reverse("go-to"), {"q": "order-1"})
    assert (found.status_code, found["Location"]) == (303, reverse("job", args=[mine]))


def test_the_jobs_of_a_request_id_are_looked_up_in_each_account_by_the_unique_key(desk):
    lives.open_account("elsewhere")
    work_data.submit("order-1")
    work_data.submit("order-1", account="elsewhere")
    with CaptureQueriesContext(connection) as asked:
        assert len(jobs_of_request("order-1").rows) == 2
    assert len(asked) == 1
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {'QUERY PLAN ' * IS_SQLITE}{asked[0]['sql']}")
        plan = str(cursor.fetchall())
    assert "bz_job_request" in plan or "account_id=? AND request_id=?" in plan, plan
    assert "SCAN found" not in plan


def test_lists_that_end_before_the_last_account_say_so(desk, operator, monkeypatch):
    lives.open_account("elsewhere")
    jobs = [work_data.submit("order-1"), work_data.submit("order-1", account="elsewhere")]
    by_account = {"acme-prod": jobs[0].id, "elsewhere": jobs[1].id}
    lookups = [(reverse("jobs"), {"request": "order-1"}), (reverse("go-to"), {"q": "order-1"})]
    for address, query in lookups:
        page = operator.get(address, query).text
        assert all(job_id in page for job_id in by_account.values())
        assert "More than" not in page
    monkeypatch.setattr(lookup, "FOUND_MAX", 1)
    page = operator.get(*lookups[0]).text
    assert "More than 1 accounts have a job with this request id" in page
    assert by_account["acme-prod"] in page and by_account["elsewhere"] not in page
    query = {"request": "order-1", "account": "elsewhere"}
    page = operator.get(reverse("jobs"), query).text
    assert by_account["elsewhere"] in page and "More than" not in page
    page = operator.get(*lookups[1]).text
    assert "More than 1 accounts use this id" in page and by_account["elsewhere"] not in page


def test_an_ended_job_is_held_by_nobody_any_more(desk, operator):
    record = work_data.claim(work_data.submit("order-1").id, owner="wrk_alpha")
    address = reverse("job", args=[record.id])
    assert ">Held by<" in operator.get(address).text
    work_data.STORE.finish(fence=record.fence, state="done", result_text='{"text":"Done."}')
    page = operator.get(address).text
    assert ">Held by<" not in page and ">Last held by<" in page and "Lease until" not in page


@pytest.mark.parametrize("scope", ["global", "route:refunds"])
def test_a_pause_asks_for_a_reason_and_goes_on_again(desk, operator, scope):
    form = rendered(operator, "pause", scope)
    assert send(operator, form, reason="").status_code == 422
    assert send(operator, form, reason="The shop\nis closed.").status_code == 303
    row = Pause.objects.get(scope=scope)
    assert (row.reason, row.paused_by) == ("The shop is closed.", "user:operator")
    assert "The shop is closed." in operator.get(reverse("jobs")).text
    twice = send(operator, rendered(operator, "pause", scope), reason="again")
    assert twice.status_code == 409
    assert send(operator, rendered(operator, "unpause", scope)).status_code == 303
    assert not Pause.objects.exists()
    assert send(operator, rendered(operator, "unpause", scope)).status_code == 409


def test_a_job_shows_its_steps_and_who_waits_for_what(desk, operator):
    one = work_data.refund("order-7", 900)
    page = operator.get(reverse("job", args=[one.job_id])).text
    assert "It waits for" in page and reverse("approval", args=one.approval_ids) in page
    assert reverse("call", args=[f"{one.job_id}.1.0"]) in page
    model = lives.admitted("step-1", account=work_data.ACCOUNT, service="gpt-main")
    Request.objects.filter(id=model.id).update(operation_id=f"job:{one.job_id}:1")
    page = operator.get(reverse("job", args=[one.job_id])).text
    assert reverse("request", args=[model.id]) in page


def test_cancelling_a_job_cancels_its_questions(desk, operator):
    one = work_data.refund("order-1")
    form = rendered(operator, "job-cancel", one.job_id)
    assert send(operator, form, reason="").status_code == 422
    assert send(operator, form, reason="Asked twice.").status_code == 303
    assert Job.objects.get(id=one.job_id).state == "cancelled"
    assert Approval.objects.get(id=one.approval_ids[0]).state == "cancelled"
    assert send(operator, form, reason="Asked twice.").status_code == 303  # a double click
    assert AuditRow.objects.filter(action="job.cancel").count() == 1
    again = send(operator, rendered(operator, "job-cancel", one.job_id), reason="x")
    assert again.status_code == 409


def test_a_parked_job_is_resumed_and_no_other_one(desk, operator):
    parked, queued = work_data.submit("order-1").id, work_data.submit("order-2").id
    work_data.park(parked)
    form = rendered(operator, "job-resume", parked)
    assert send(operator, form, reason="Disk is free again.").status_code == 303
    assert Job.objects.get(id=parked).state == "queued"
    refused = send(operator, rendered(operator, "job-resume", queued))
    assert refused.status_code == 409 and "Only a parked job" in refused.text


@pytest.mark.parametrize("outcome,state", [("done", "done"), ("not_done", "failed")])
def test_an_uncertain_call_is_resolved_with_a_note_and_the_job_goes_on(
    desk, operator, outcome, state
):
    job_id = uncertain_job()
    call_id = f"{job_id}.1.0"
    assert "may have been carried out" in operator.get(reverse("job", args=[job_id])).text
    form = rendered(operator, "call", call_id)
    assert send(operator, form, outcome=outcome, note="").status_code == 422
    answer = send(operator, form, outcome=outcome, note="Found it\nin the shop.")
    assert answer.status_code == 303
    row = ToolCall.objects.get(id=call_id)
    assert (row.state, row.note) == (state, "Found it in the shop.")
    assert Job.objects.get(id=job_id).state == "queued"
    late = send(operator, form, outcome="done", note="Another note.")
    assert late.status_code == 409 and "Another note." in late.text


def test_a_call_that_is_on_its_way_is_not_resolved(desk, operator):
    one = work_data.refund("order-1")
    work_data.decide(one.approval_ids[0], "approved")
    work_data.send(one.job_id)
    address = reverse("call", args=[f"{one.job_id}.1.0"])
    assert 'name="outcome"' not in operator.get(address).text
    data = {"form_key": "k" * 22, "outcome": "done", "note": "seen"}
    assert operator.post(address, data).status_code == 409


@pytest.mark.parametrize("role", ["viewer", "approver"])
def test_who_may_not_operate_cannot_pause_cancel_or_resolve(desk, signed_in, role):
    client, job_id = signed_in(role), uncertain_job()
    assert client.get(reverse("jobs")).status_code == 200
    for address in (
        reverse("pause", args=["global"]),
        reverse("job-cancel", args=[job_id]),
        reverse("call", args=[f"{job_id}.1.0"]),
    ):
        data = {"form_key": "k" * 22, "reason": "x", "outcome": "done", "note": "x"}
        assert client.post(address, data).status_code == 403
    assert Job.objects.get(id=job_id).state == "waiting" and not Pause.objects.exists()


def test_a_poll_of_a_job_answers_204_until_it_moves(desk, operator):
    one = work_data.refund("order-1")
    address = reverse("job", args=[one.job_id])
    version = operator.get(address).context["version"]
    poll = {"poll": "1", "seen": version}
    assert operator.get(address, poll).status_code == 204
    work_data.decide(one.approval_ids[0], "approved")
    answer = operator.get(address, poll, headers={"HX-Request": "true"})
    assert answer.status_code == 200 and "<html" not in answer.text
