"""Grave acts ask who it is, and lose nothing of what was typed (L2)."""

from unittest import mock

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from console import proofs
from kernel import clock
from kernel.conf import override
from kernel.models import Approval, AuditRow, Request, Token
from tests.console.views.conftest import rendered, send
from tests.support import lives, work_data
from tests.support.pages import form_to, forms_of
from tests.support.second_factors import code, sign_in, with_app


@pytest.fixture
def later():
    """More time passed since the sign-in than a proof holds."""
    now = int(clock.now().timestamp())
    with override(step_up_seconds=900), mock.patch.object(proofs, "_now", lambda: now + 901):
        yield


@pytest.fixture
def asked(db):
    """A question of high risk about a refund."""
    lives.open_account()
    lives.add_service()
    work_data.tools_and_routes(service_id="gpt")
    found = work_data.refund("order-1", account="acme").approval_ids[0]
    Approval.objects.filter(id=found).update(risk="high")
    return found


@pytest.fixture
def marek(person):
    person("marek", "approver")
    client = Client()
    sign_in(client, "marek")
    return client


def question(approval_id):
    return Approval.objects.values_list("decision", "reason").get(id=approval_id)


def test_approving_high_risk_asks_first_and_then_decides_with_the_note_as_typed(
    asked, marek, later
):
    form = rendered(marek, "approval-approve", asked)
    page = send(marek, form, reason="Ticket 81: checked <b>twice</b>")
    assert page.status_code == 403
    assert question(asked) == ("", ""), "nothing was decided"
    assert "Ticket 81: checked &lt;b&gt;twice" in page.text
    again = form_to(page.text, form.action)
    assert {name: again.fields[name] for name in ("decision_id", "sha256", "form_key")} == {
        name: form.fields[name] for name in ("decision_id", "sha256", "form_key")
    }
    wrong = send(marek, again, step_up_password="guess")
    assert (wrong.status_code, question(asked)) == (403, ("", ""))
    assert "guess" not in wrong.text and "does not match" in wrong.text
    right = send(marek, form_to(wrong.text, form.action), step_up_password="correct horse")
    assert right.status_code in (303, 503)
    assert question(asked) == ("approved", "Ticket 81: checked <b>twice</b>")
    assert "correct horse" not in str(list(AuditRow.objects.values_list()))


def test_the_question_names_the_act_it_is_asked_for(asked, marek, signed_in, later):
    effect = Approval.objects.get(id=asked).effect
    page = send(marek, rendered(marek, "approval-approve", asked), reason="seen").text
    assert f"Approve: {effect}" in page and "everything as you typed it" in page
    admin = signed_in("admin")
    form = rendered(admin, "token-new")
    page = send(admin, form, account_id="acme", name="<i>ci", scopes="usage:read").text
    assert "Issue the token “&lt;i&gt;ci” for account acme" in page
    row = lives.unknown("op-1")
    address = reverse("request-resolve", args=[row.id])
    form = form_to(admin.get(address).text, address)
    page = send(admin, form, outcome="not_executed", note="It never ran.").text
    assert "Record about the request op-1: “It was not executed: nothing is owed”" in page


def test_under_htmx_the_question_is_a_part_of_the_same_form(asked, marek, later):
    form = rendered(marek, "approval-approve", asked)
    htmx = {"HX-Request": "true", "HX-Target": "decide"}
    page = marek.post(form.action, {**form.fields, "reason": "seen"}, headers=htmx)
    assert page.status_code == 403 and "<html" not in page.text
    assert f'hx-post="{form.action}" hx-target="#decide"' in page.text
    hostile = {"HX-Request": "true", "HX-Target": 'x"><script>'}
    assert (
        "<script>"
        not in marek.post(form.action, {**form.fields, "reason": "s"}, headers=hostile).text
    )
    again = form_to(page.text, form.action)
    done = marek.post(
        form.action, {**again.fields, "step_up_password": "correct horse"}, headers=htmx
    )
    assert done.status_code in (200, 503)
    assert question(asked) == ("approved", "seen")


def test_a_code_proves_it_too_and_the_proof_holds_for_the_next_acts(asked, marek, later):
    with_app(User.objects.get(username="marek"))
    form = rendered(marek, "approval-approve", asked)
    page = send(marek, form, reason="seen")
    right = send(marek, form_to(page.text, form.action), step_up_code=code())
    assert right.status_code in (303, 503)
    assert question(asked)[0] == "approved"
    assert marek.session["confirmed_at"] == proofs._now()


def test_denying_and_low_risk_ask_nothing(asked, marek, later):
    form = rendered(marek, "approval-deny", asked)
    assert send(marek, form, reason="no").status_code in (303, 503)
    assert question(asked) == ("denied", "no")


def test_a_fresh_sign_in_is_a_proof(asked, marek):
    form = rendered(marek, "approval-approve", asked)
    assert send(marek, form, reason="seen").status_code in (303, 503)


def test_many_questions_at_once_ask_once_when_one_of_them_is_high_risk(asked, marek, later):
    address = reverse("approvals-bulk")
    page = marek.get(f"{address}?decision=approved&id={asked}")
    form = form_to(page.text, address)
    asked_first = send(marek, form, reason="all seen")
    assert asked_first.status_code == 403 and question(asked) == ("", "")
    again = form_to(asked_first.text, address)
    assert send(marek, again, step_up_password="correct horse").status_code == 200
    assert question(asked) == ("approved", "all seen")


def test_a_list_of_ticked_values_survives(signed_in, later, db):
    lives.open_account()
    admin = signed_in("admin")
    form = rendered(admin, "token-new")
    typed = {**form.fields, "account_id": "acme", "name": "ci"}
    page = admin.post(form.action, {**typed, "scopes": ["usage:read", "jobs:read"]})
    assert page.status_code == 403 and not Token.objects.exists()
    assert page.text.count('name="scopes"') == 2


def test_resolving_an_unknown_keeps_the_evidence(signed_in, later, db):
    lives.open_account()
    lives.add_service()
    row = lives.unknown("op-1")
    operator = signed_in("operator")
    address = reverse("request-resolve", args=[row.id])
    form = form_to(operator.get(address).text, address)
    page = send(operator, form, note="provider says: never ran")
    assert page.status_code == 403 and "provider says: never ran" in page.text
    assert Request.objects.get(id=row.id).result_state == "unknown"


def test_guesses_are_throttled(asked, marek, later):
    form = rendered(marek, "approval-approve", asked)
    with override(sign_in_tries_max=3):
        for _try in range(3):
            send(marek, form, reason="x", step_up_password="guess")
        page = send(marek, form, reason="x", step_up_password="correct horse")
    assert page.status_code == 403 and "Try again in" in page.text
    assert question(asked) == ("", "")
    assert sign_in(Client(), "marek") == "/", "the sign-in has its own count"


def test_the_question_needs_a_csrf_token_like_the_act(asked, person, later):
    person("marek", "approver")
    client = Client(enforce_csrf_checks=True)
    page = client.get("/sign-in/")
    form = forms_of(page.text)[0]
    client.post("/sign-in/", {**form.fields, "username": "marek", "password": "correct horse"})
    decide = rendered(client, "approval-approve", asked)
    asked_page = send(client, decide, reason="seen")
    assert asked_page.status_code == 403 and "fresh proof" in asked_page.text
    again = form_to(asked_page.text, decide.action)
    without = {name: value for name, value in again.fields.items() if name != "csrfmiddlewaretoken"}
    assert (
        client.post(decide.action, {**without, "step_up_password": "correct horse"}).status_code
        == 403
    )
    assert question(asked) == ("", "")
    assert send(client, again, step_up_password="correct horse").status_code in (303, 503)
