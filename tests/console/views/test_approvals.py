"""Approvals on screen: lists without bodies, one decision per form, stale ones explained (C, L)."""

import re
from urllib.parse import quote

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from kernel import approvals as kernel_approvals
from kernel.access.people import change_person
from kernel.approvals import continuations
from kernel.audit import Actor
from kernel.errors import Unavailable
from kernel.models import Approval, AuditRow, Continuation, Job, ToolCall
from tests.console.views.conftest import rendered, send
from tests.support import work_data
from tests.support.pages import doubled_ids, form_to, policy_faults

QUERIES_MAX = 12  # SQLite asks once per state, where the others have one UNION ALL
HIDDEN = re.compile("[\u202a-\u202e\u2066-\u2069\u200b\u2060]")


@pytest.fixture
def asked(desk):
    """One open question of medium risk; its id."""
    return work_data.refund("order-1").approval_ids[0]


def row_of(approval_id):
    return Approval.objects.get(id=approval_id)


def decisions_of(approval_id):
    rows = AuditRow.objects.filter(subject=f"approval:{approval_id}", action="approval.decided")
    return list(rows)


def queries_of(client, address):
    with CaptureQueriesContext(connection) as found:
        assert client.get(address).status_code == 200
    return found


# --- lists --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["approvals", "approvals-decided", "approvals-expired"])
def test_a_list_costs_the_same_with_one_row_and_with_many_and_reads_no_arguments(
    desk, approver, name
):
    def make(number):
        (approval_id,) = work_data.refund(f"order-{number}").approval_ids
        if name == "approvals-decided":
            work_data.decide(approval_id, "approved")
        if name == "approvals-expired":
            work_data.late(approval_id)
            assert kernel_approvals.decisions.expire(approval_id=approval_id)

    make(0)
    address = reverse(name)
    approver.get(address)
    few = len(queries_of(approver, address))
    for number in range(1, 8):
        make(number)
    many = queries_of(approver, address)
    assert len(many) == few <= QUERIES_MAX, [one["sql"][:90] for one in many]
    assert not [one["sql"] for one in many if "arguments_text" in one["sql"]]


def test_the_badge_counts_only_what_somebody_could_decide_now(desk, approver):
    ids = [work_data.refund(f"order-{number}").approval_ids[0] for number in range(4)]
    work_data.decide(ids[0], "approved")
    work_data.late(ids[1])
    page = approver.get(reverse("home")).text
    assert '<span class="nav-count">2</span>' in page
    listed = approver.get(reverse("approvals")).text
    assert "Expired" in listed
    box = re.search(rf'<input type="checkbox" name="id" value="{ids[1]}"[^>]*>', listed)
    assert box is not None and "disabled" in box.group()


def test_each_decision_shows_what_the_call_then_did(desk, approver):
    fates = {}
    for name in ("not_started", "running", "uncertain", "done", "denied"):
        one = work_data.refund(f"order-{name}")
        work_data.decide(one.approval_ids[0], "denied" if name == "denied" else "approved")
        fates[name] = one
    work_data.send(fates["running"].job_id)
    work_data.lose_worker(work_data.send(fates["uncertain"].job_id))
    work_data.answer(work_data.send(fates["done"].job_id))
    words = {
        "not_started": "Not started yet",
        "running": "Running",
        "uncertain": "Uncertain",
        "done": "Done",
        "denied": "Never sent",
    }
    listed = approver.get(reverse("approvals-decided")).text
    for name, word in words.items():
        page = approver.get(reverse("approval", args=[fates[name].approval_ids[0]])).text
        fate = page.split('class="fate"')[1].split("</p>")[0]
        assert word in fate, name
        assert word in listed


# --- one question -------------------------------------------------------------------------------


def test_what_hides_is_shown_and_secrets_are_not(desk, approver):
    arguments = {
        "order_id": "order-\u202e1",
        "amount": 900,
        "note": f"{work_data.LOOKALIKE}{' ' * 5_000}rm\u200b",
        "headers": {"Authorization": f"Bearer {work_data.SECRET}"},
    }
    one = work_data.ask("order-1", [("refund_order", arguments)])
    (approval_id,) = one.approval_ids
    addresses = [reverse("approvals")]
    addresses += [reverse(f"approval{each}", args=[approval_id]) for each in ("", "-approve")]
    addresses += [f"{reverse('approvals-bulk')}?decision=approved&id={approval_id}"]
    addresses += [reverse("job", args=[one.job_id]), reverse("call", args=[f"{one.job_id}.1.0"])]
    for address in addresses:
        page = approver.get(address).text
        assert work_data.SECRET not in page, address
        assert not HIDDEN.findall(page), address
        assert "⟦U+202E⟧" in page, address
        assert not policy_faults(page) + doubled_ids(page), address
    page = approver.get(addresses[1]).text
    assert "⟦5000 spaces⟧" in page and "xn--" in page and "••••" in page
    assert row_of(approval_id).arguments_sha256 in page


def test_a_long_argument_is_whole_before_the_button_that_approves(desk, approver):
    text = "word " * 18_000 + "the very end"
    (approval_id,) = work_data.refund("order-1", note=text).approval_ids
    page = approver.get(reverse("approval-approve", args=[approval_id])).text
    assert page.index("the very end") < page.index('name="decision_id"')


def test_the_difference_to_the_last_approved_call_is_shown(desk, approver):
    first, second = work_data.refund("order-1", 20), work_data.refund("order-2", 45)
    work_data.decide(first.approval_ids[0], "approved")
    page = approver.get(reverse("approval", args=[second.approval_ids[0]])).text
    table = page.split("Against the last approved call")[1].split("</table>")[0]
    assert "20" in table and "45" in table and "currency" not in table


# --- deciding -----------------------------------------------------------------------------------


def test_a_link_that_an_earlier_version_sent_still_opens_its_page(asked, approver, client):
    """Notices hold `/approvals/<id>/`: it stays an address for good, before and after the end."""
    link = f"/approvals/{asked}/"
    assert asked in approver.get(link).text
    assert client.get(link).headers["location"].endswith(f"next={quote(link, safe='')}")
    work_data.decide(asked, "approved", by="olga")
    page = approver.get(link)
    assert page.status_code == 200 and "olga" in page.text


def test_who_lost_the_role_while_the_form_was_open_decides_no_more(asked, approver):
    form = rendered(approver, "approval-approve", asked)
    change_person(name="approver", role="viewer", actor=Actor("user", "olga"))
    assert send(approver, form, reason="yes").status_code == 403
    assert row_of(asked).state == "open" and decisions_of(asked) == []


@pytest.mark.parametrize("method", ["get", "head"])
def test_looking_at_any_link_decides_nothing(asked, approver, method):
    before = row_of(asked).updated_at
    names = ("approval", "approval-approve", "approval-deny")
    addresses = [reverse(name, args=[asked]) for name in names]
    addresses.append(f"{reverse('approvals-bulk')}?decision=approved&id={asked}")
    for address in addresses * 10:
        assert getattr(approver, method)(address).status_code == 200
    assert row_of(asked).updated_at == before and not decisions_of(asked)


def test_an_approval_is_recorded_once_and_carried_through(asked, approver):
    form = rendered(approver, "approval-approve", asked)
    first = send(approver, form, reason="Checked in the shop.")
    assert (first.status_code, first["Location"]) == (303, reverse("approval", args=[asked]))
    again = send(approver, form, reason="Checked in the shop.")  # a double click
    assert again.status_code == 303
    row = row_of(asked)
    assert (row.state, row.decided_by_kind, row.decided_by_id) == ("approved", "user", "approver")
    assert row.reason == "Checked in the shop." and len(decisions_of(asked)) == 1
    assert Job.objects.get(id=row.job_id).state == "queued"
    assert Continuation.objects.get(approval_id=asked).state == "done"


def test_denying_a_high_risk_needs_a_reason_and_refuses_the_job(desk, approver):
    one = work_data.refund("order-1", 900)
    (approval_id,) = one.approval_ids
    form = rendered(approver, "approval-deny", approval_id)
    refused = send(approver, form, reason=" ")
    assert refused.status_code == 422 and "field-error" in refused.text
    assert row_of(approval_id).state == "open"
    retried = form_to(refused.text, form.action)
    assert retried.fields["decision_id"] == form.fields["decision_id"]
    assert send(approver, retried, reason="The parcel was delivered.").status_code == 303
    assert row_of(approval_id).state == "denied"
    assert Job.objects.get(id=one.job_id).state == "refused"
    assert ToolCall.objects.get(job_id=one.job_id).state != "dispatching"


@pytest.mark.parametrize("htmx", [False, True])
def test_who_was_first_is_named_and_the_typed_note_stays(asked, approver, htmx):
    form = rendered(approver, "approval-deny", asked)
    work_data.decide(asked, "approved", by="olga", reason="It is fine.")
    headers = {"HX-Request": "true"} if htmx else {}
    data = {**form.fields, "reason": "My typed note."}
    answer = approver.post(form.action, data, headers=headers)
    assert answer.status_code == 409
    assert "Somebody was first: olga, approved" in answer.text and "It is fine." in answer.text
    assert "My typed note." in answer.text and "Traceback" not in answer.text
    assert ("<html" in answer.text) is not htmx
    assert len(decisions_of(asked)) == 1


def test_a_question_whose_time_is_over_says_so(asked, approver):
    form = rendered(approver, "approval-approve", asked)
    work_data.late(asked)
    answer = send(approver, form, reason="yes")
    assert answer.status_code == 409 and "Expired" in answer.text
    assert row_of(asked).state == "expired"


def test_arguments_other_than_the_shown_ones_are_not_approved(asked, approver):
    form = rendered(approver, "approval-approve", asked)
    answer = send(approver, form, reason="", sha256="0" * 64)
    assert answer.status_code == 409 and row_of(asked).state == "open"


@pytest.mark.parametrize("field", ["sha256", "decision_id"])
def test_a_form_without_what_it_was_rendered_with_is_400(asked, approver, field):
    form = rendered(approver, "approval-approve", asked)
    assert send(approver, form, reason="", **{field: ""}).status_code == 400
    assert row_of(asked).state == "open"


def test_who_asked_cannot_decide_on_any_path(asked, approver):
    Approval.objects.filter(id=asked).update(requested_by="user:approver")
    page = approver.get(reverse("approval", args=[asked])).text
    assert "You asked for this, or a token" in page
    bulk = approver.get(reverse("approvals-bulk"), {"decision": "approved", "id": asked})
    assert "You asked for this, or a token" in bulk.text and 'name="item"' not in bulk.text
    digest = row_of(asked).arguments_sha256
    data = {"form_key": "k" * 22, "sha256": digest, "decision_id": "dec_1", "reason": "x"}
    answer = approver.post(reverse("approval-approve", args=[asked]), data)
    assert answer.status_code == 403 and row_of(asked).state == "open"


# --- recorded, continuing -----------------------------------------------------------------------


class Failing(work_data.DatabaseStore):
    """A state store that cannot admit for now."""

    @staticmethod
    def requeue_approved_job_once(**values):
        raise RuntimeError("bad config")


def test_a_failed_continuation_is_503_and_the_same_form_then_ends_well(
    asked, approver, monkeypatch
):
    form = rendered(approver, "approval-approve", asked)
    with monkeypatch.context() as patched:
        patched.setattr("console.views.approvals.store_of", lambda request: Failing())
        answer = send(approver, form, reason="fine")
    assert answer.status_code == 503 and "Recorded, continuing" in answer.text
    assert "bad config" in answer.text and answer["Retry-After"]
    assert answer["Refresh"].endswith(reverse("approval", args=[asked]))
    assert row_of(asked).state == "approved"
    repeat = form_to(answer.text, form.action)
    assert repeat.fields["decision_id"] == form.fields["decision_id"]
    assert approver.post(form.action, repeat.fields).status_code == 303
    assert Job.objects.get(id=row_of(asked).job_id).state == "queued"
    assert len(decisions_of(asked)) == 1


def test_a_stuck_continuation_shows_attempts_error_and_a_retry_for_operators(
    asked, approver, signed_in
):
    work_data.decide(asked, "approved")
    work_data.fail_continuation(asked, "RuntimeError: bad config")
    page = approver.get(reverse("approval", args=[asked])).text
    assert "RuntimeError: bad config" in page and "Attempts" in page
    operator = signed_in("operator")
    form = form_to(
        operator.get(reverse("approval", args=[asked])).text,
        reverse("approval-retry", args=[asked]),
    )
    assert operator.post(form.action, form.fields).status_code == 303
    assert continuations.carry_through(approval_id=asked, store=work_data.STORE)
    row = Continuation.objects.get(approval_id=asked)
    assert row.state == "done"
    assert operator.post(form.action, form.fields).status_code == 409


# --- polls --------------------------------------------------------------------------------------


def test_a_poll_answers_204_until_somebody_decides_and_then_the_new_state(asked, approver):
    page = approver.get(reverse("approval", args=[asked])).text
    (address,) = re.findall(r'hx-get="([^"]+poll=1[^"]+)"', page)
    address = address.replace("&amp;", "&")
    headers = {"HX-Request": "true", "HX-Polling": "true"}
    assert approver.get(address, headers=headers).status_code == 204
    work_data.decide(asked, "approved", by="olga")
    answer = approver.get(address, headers=headers)
    assert answer.status_code == 200 and "olga" in answer.text and "<html" not in answer.text
    line = approver.get(f"{address}&line=1", headers=headers)
    assert "Meanwhile" in line.text and "olga" in line.text


def test_the_list_says_how_many_came(desk, approver):
    work_data.refund("order-1")
    page = approver.get(reverse("approvals")).text
    (address,) = re.findall(r'hx-get="([^"]*poll=1[^"]*)"', page)
    address = reverse("approvals") + address.replace("&amp;", "&")
    assert approver.get(address).status_code == 204
    work_data.refund("order-2")
    assert "1 new question" in approver.get(address).text


# --- people, ids, migrations --------------------------------------------------------------------


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_who_may_not_decide_sees_why(asked, signed_in, role):
    client = signed_in(role)
    assert "Your role" in client.get(reverse("approval", args=[asked])).text
    assert client.get(reverse("approval-approve", args=[asked])).status_code == 403
    answer = client.post(reverse("approval-approve", args=[asked]), {"form_key": "k" * 22})
    assert answer.status_code == 403 and row_of(asked).state == "open"


def test_the_go_to_box_finds_approvals_jobs_and_calls(desk, approver):
    one = work_data.refund("order-1")
    places = {
        one.approval_ids[0]: reverse("approval", args=one.approval_ids),
        one.job_id: reverse("job", args=[one.job_id]),
        f"{one.job_id}.1.0": reverse("call", args=[f"{one.job_id}.1.0"]),
    }
    for text, address in places.items():
        answer = approver.get(reverse("go-to"), {"q": text})
        assert (answer.status_code, answer.get("Location")) == (303, address)


@pytest.mark.parametrize("name", ["approvals", "jobs", "tools", "routes"])
def test_until_db_init_the_screens_say_unavailable_and_the_rest_works(
    asked, without_0068, admin, name
):
    assert admin.get(reverse("home")).status_code == 200
    answer = admin.get(reverse(name))
    assert answer.status_code == 503
    assert "Unavailable until db_init" in answer.text and "0068_agent_jobs" in answer.text


@pytest.fixture
def without_0068(monkeypatch):
    """A database that lacks migration 0068."""

    def require(name):
        raise Unavailable(f"The database lacks the migration {name}.", code="migration_missing")

    monkeypatch.setattr("kernel.schema.require", require)


def test_home_lists_what_agent_jobs_leave_to_people(desk, approver):
    assert "wait for a decision" not in approver.get(reverse("home")).text
    work_data.refund("order-1")
    for name in ("uncertain", "failing", "parked"):
        one = work_data.refund(f"order-{name}")
        work_data.decide(one.approval_ids[0], "approved")
        if name == "uncertain":
            work_data.lose_worker(work_data.send(one.job_id))
        elif name == "failing":
            work_data.fail_continuation(one.approval_ids[0])
        else:
            work_data.park(one.job_id)
    with CaptureQueriesContext(connection) as found:
        page = approver.get(reverse("home")).text
    for text in (
        "1 call waits for a decision",
        "1 uncertain tool call",
        "1 recorded decision is not carried through",
        "1 parked job",
    ):
        assert text in page
    assert len(found) <= QUERIES_MAX
