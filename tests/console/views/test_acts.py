"""Acts: audited with person and HTTP request, once per rendered form, refused with who and when."""

import pytest
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.urls import reverse

from kernel import access, usage
from kernel.errors import CommitOutcomeUnknown
from kernel.models import Account, AuditRow, LedgerRow, Request, Service, Token
from kernel.states import Billing, Result
from tests.console.views.conftest import rendered, send
from tests.support import lives
from tests.support.pages import form_to

pytestmark = pytest.mark.usefixtures("acme")

HTMX = {"HX-Request": "true"}
NOT_EXECUTED = {"outcome": "not_executed", "note": "The provider has no such call."}
EXECUTED = {
    "outcome": "executed",
    "input_tokens": "9",
    "output_tokens": "4",
    "note": "Found in the provider's log.",
}
PRICE = {"provider": "acme", "model": "m1", "input": "2.50", "output": "10"}


def resolve_form(client, request_id):
    page = client.get(reverse("request", args=[request_id])).text
    action = reverse("request-resolve", args=[request_id])
    return form_to(page, action)


def no_usage(operation_id="op-pending"):
    fence = lives.dispatched(operation_id)
    lives.save(lives.answer_of(fence, metering=None))
    lives.settle(fence.request_id)
    return fence.request_id


def issued():
    return access.issue_token(
        account_id="acme", name="ci", scopes=["usage:read"], actor=lives.ACTOR
    )[0]


def petra():
    return access.add_person(
        name="petra", role="viewer", password="a long first password", actor=lives.ACTOR
    )


def acts_since(before):
    return list(AuditRow.objects.exclude(id__in=before))


ACTS = {
    "request.resolve_unknown": lambda: ("request-resolve", lives.unknown("op-u").id, NOT_EXECUTED),
    "request.resolve_pending": lambda: ("request-resolve", no_usage(), EXECUTED),
    "request.write_off": lambda: (
        "request-resolve",
        no_usage(),
        {"outcome": "write_off", "note": "Too small to ask."},
    ),
    "request.cancel": lambda: (
        "request-cancel",
        lives.admitted("op-a").id,
        {"note": "Not needed."},
    ),
    "request.correct": lambda: (
        "request-correct",
        lives.settled("op-s").id,
        {"amount_nano": "-0.00001", "confirmed": "-10000", "reason": "Billed too much."},
    ),
    "account.create": lambda: (
        "account-new",
        "",
        {"account_id": "new", "name": "New", "multiplier_millionths": "1"},
    ),
    "account.change": lambda: ("account-change", "acme", {"cap_nano": "300", "reason": "More."}),
    "service.add": lambda: (
        "service-new",
        "",
        {"service_id": "s2", "base_url": "https://api.example.com/v1", "model": "m"},
    ),
    "service.change": lambda: ("service-change", "gpt", {"model": "m2", "reason": "Newer."}),
    "price.add": lambda: ("price-new", "", PRICE),
    "token.issue": lambda: (
        "token-new",
        "",
        {"account_id": "acme", "name": "ci", "scopes": "usage:read"},
    ),
    "token.revoke": lambda: ("token-revoke", issued().id, {"reason": "Leaked."}),
    "person.add": lambda: ("person-new", "", {"name": "ida", "role": "operator"}),
    "person.change": lambda: (
        "person-change",
        petra().username,
        {"role": "operator", "active": "on"},
    ),
}


@pytest.fixture(params=ACTS)
def prepared(request, admin):
    """An act that is possible now: (its name, the rendered form, the values a person types)."""
    name, argument, values = ACTS[request.param]()
    arguments = [argument] if argument else []
    if name == "request-resolve":
        form = resolve_form(admin, argument)
    else:
        form = rendered(admin, name, *arguments)
    return request.param, form, values


def test_each_act_writes_one_audit_row_with_person_and_http_request(admin, prepared):
    action, form, values = prepared
    before = list(AuditRow.objects.values_list("id", flat=True))
    response = send(admin, form, **values)
    assert response.status_code in (200, 303), response.text
    (row,) = acts_since(before)
    assert (row.action, row.actor_kind, row.actor_id) == (action, "user", "admin")
    assert row.request_id == response["X-Request-Id"]
    assert row.act_key == form.fields["form_key"]
    assert row.reason == values.get("note", values.get("reason", ""))


def test_a_form_that_is_sent_twice_acts_once_and_says_so(admin, prepared):
    action, form, values = prepared
    before = list(AuditRow.objects.values_list("id", flat=True))
    assert send(admin, form, **values).status_code in (200, 303)
    again = send(admin, form, **values)
    assert again.status_code == 303
    (message,) = [str(one) for one in get_messages(again.wsgi_request)][-1:]
    assert "This form was carried out once" in message or message == "It was revoked already."
    assert [row.action for row in acts_since(before)] == [action]


def test_each_rendering_of_a_form_has_a_key_of_its_own(operator):
    request_id = lives.unknown("op-1").id
    keys = {resolve_form(operator, request_id).fields["form_key"] for _ in range(5)}
    assert len(keys) == 5


def test_a_form_without_its_key_or_version_is_refused(operator):
    request_id = lives.unknown("op-1").id
    form = resolve_form(operator, request_id)
    for name in ("form_key", "version"):
        fields = {key: value for key, value in form.fields.items() if key != name}
        response = operator.post(form.action, {**fields, **NOT_EXECUTED})
        assert response.status_code == 400
    assert lives.read(request_id).result_state == Result.UNKNOWN


def test_back_and_resend_with_another_note_is_told_that_it_was_done(operator):
    form = resolve_form(operator, lives.unknown("op-1").id)
    send(operator, form, **NOT_EXECUTED)
    response = send(operator, form, **{**NOT_EXECUTED, "note": "On second thoughts."})
    assert response.status_code == 409
    assert "On second thoughts." in response.text
    assert "operator" in response.text and "Resolved the unknown outcome" in response.text
    assert AuditRow.objects.filter(action="request.resolve_unknown").count() == 1


def test_of_two_tabs_the_second_learns_who_did_what_and_when(signed_in):
    request_id = lives.unknown("op-1").id
    olga, marek = signed_in("operator"), signed_in("admin")
    first, second = resolve_form(olga, request_id), resolve_form(marek, request_id)
    assert send(olga, first, **NOT_EXECUTED).status_code == 303
    response = send(marek, second, **{**EXECUTED, "note": "I see it in the log!"})
    assert response.status_code == 409
    text = response.text
    assert "Nothing was done" in text
    assert "<dd><bdi" in text and ">operator</bdi>" in text
    assert "Resolved the unknown outcome" in text
    assert "just now" in text
    assert "I see it in the log!" in text
    row = lives.read(request_id)
    assert (row.result_state, row.billing_state) == (Result.FAILED, Billing.NOT_CHARGED)
    assert not LedgerRow.objects.exists()


def test_a_late_answer_makes_an_open_form_stale_and_the_note_stays(operator):
    fence = lives.dispatched("op-1")
    lives.save(lives.lost_answer_of(fence))
    form = resolve_form(operator, fence.request_id)
    lives.save(lives.answer_of(fence))
    response = send(operator, form, **NOT_EXECUTED)
    assert response.status_code == 409
    assert "complete" in response.text
    assert NOT_EXECUTED["note"] in response.text
    assert lives.read(fence.request_id).result_state == Result.COMPLETE


def test_a_confirmation_that_means_something_else_by_now_is_refused(operator):
    row = lives.admitted("op-1")
    form = rendered(operator, "request-cancel", row.id)
    lives.dispatch(row)  # now it would be "incurred usage is charged"
    response = send(operator, form, note="Not needed.")
    assert response.status_code == 409
    assert "The call goes on unheard" in response.text
    assert "Not needed." in response.text
    assert lives.read(row.id).result_state == Result.DISPATCHED
    again = send(operator, rendered(operator, "request-cancel", row.id), note="Not needed.")
    assert again.status_code == 303
    assert lives.read(row.id).result_state == Result.CANCELLED


def test_a_change_of_an_account_from_an_old_form_names_what_came_between(admin):
    form = rendered(admin, "account-change", "acme")
    usage.change_account(
        account_id="acme", version=1, actor=lives.ACTOR, cap_nano=7 * 10**9, reason="Budget."
    )
    response = send(admin, form, name="Renamed", reason="Their wish.")
    assert response.status_code == 409
    assert "cap: $1,000.00 → $7.00" in response.text
    assert "Their wish." in response.text and "Renamed" in response.text
    assert Account.objects.get(id="acme").name == "acme"


@pytest.mark.parametrize(
    ("name", "argument", "change"),
    [
        (
            "service-change",
            "gpt",
            lambda: usage.change_service(
                service_id="gpt", version=1, actor=lives.ACTOR, model="other"
            ),
        ),
        (
            "person-change",
            "petra",
            lambda: access.change_person(name="petra", actor=lives.ACTOR, role="operator"),
        ),
        (
            "person-password",
            "petra",
            lambda: access.change_person(name="petra", actor=lives.ACTOR, active=False),
        ),
    ],
)
def test_every_change_from_an_old_form_is_refused(admin, name, argument, change):
    petra()
    form = rendered(admin, name, argument)
    change()
    values = {"role": "admin", "reason": "Mine."} if name.startswith("person") else {"model": "m3"}
    response = send(admin, form, **values)
    assert response.status_code == 409
    assert ">tests</bdi>" in response.text
    assert Service.objects.get(id="gpt").model != "m3"
    assert "admin" not in User.objects.get(username="petra").groups.values_list("name", flat=True)


def test_what_is_invalid_is_said_at_its_field_and_keeps_the_rest(operator):
    form = resolve_form(operator, lives.unknown("op-1").id)
    response = send(
        operator, form, outcome="executed", input_tokens="9", note="Half of it is known."
    )
    assert response.status_code == 422
    assert "A charge needs input and output tokens." in response.text
    assert "Half of it is known." in response.text


def test_what_the_kernel_refuses_is_said_at_the_field_it_names(admin):
    form = rendered(admin, "service-new")
    response = send(
        admin, form, service_id="s2", base_url="http://127.0.0.1/v1", model="m", price="a/b"
    )
    assert response.status_code == 422
    assert "allow_private" in response.text
    form = rendered(admin, "token-new")
    response = send(admin, form, account_id="nobody", name="x", scopes="usage:read")
    assert response.status_code == 422
    assert "No account nobody." in response.text
    form = rendered(admin, "account-new")
    response = send(admin, form, account_id="acme", name="x", multiplier_millionths="1")
    assert response.status_code == 409
    assert "An account named acme exists." in response.text


def test_an_unusual_rate_needs_a_second_look(admin):
    form = rendered(admin, "price-new")
    values = {**PRICE, "input": "0.0000025"}
    response = send(admin, form, **values)
    assert response.status_code == 422
    assert "was it meant per one?" in response.text
    again = send(admin, rendered(admin, "price-new"), **values, confirm="on")
    assert again.status_code == 303


@pytest.mark.parametrize("landed", [True, False])
def test_after_a_lost_commit_the_same_button_acts_at_most_once(operator, monkeypatch, landed):
    request_id = lives.unknown("op-1").id
    form = resolve_form(operator, request_id)
    resolve = usage.resolve_unknown

    def lost(**kwargs):
        if landed:
            resolve(**kwargs)
        raise CommitOutcomeUnknown("The database did not acknowledge the commit.")

    monkeypatch.setattr(usage, "resolve_unknown", lost)
    answer = send(operator, form, **NOT_EXECUTED)
    monkeypatch.setattr(usage, "resolve_unknown", resolve)
    if landed:
        assert answer.status_code == 303
    else:
        assert answer.status_code == 503 and answer["Retry-After"]
        assert "repeat with the same button" in answer.text
        repeat = form_to(answer.text, form.action)
        assert repeat.fields["form_key"] == form.fields["form_key"]
        assert send(operator, repeat, **NOT_EXECUTED).status_code == 303
    assert AuditRow.objects.filter(action="request.resolve_unknown").count() == 1


def test_with_htmx_the_same_answers_come_as_parts(operator):
    request_id = lives.unknown("op-1").id
    form = resolve_form(operator, request_id)
    stale = resolve_form(operator, request_id)
    invalid = operator.post(form.action, {**form.fields, "note": "x"}, headers=HTMX)
    assert invalid.status_code == 422 and "<html" not in invalid.text
    done = operator.post(form.action, {**form.fields, **NOT_EXECUTED}, headers=HTMX)
    assert done.status_code == 200
    assert done["HX-Redirect"] == reverse("request", args=[request_id])
    conflict = operator.post(stale.action, {**stale.fields, **EXECUTED}, headers=HTMX)
    assert conflict.status_code == 409 and "<html" not in conflict.text
    assert "Found in the provider&#x27;s log." in conflict.text


def test_a_viewer_sees_why_and_the_server_refuses_as_well(signed_in, operator):
    request_id = lives.unknown("op-1").id
    viewer = signed_in("viewer")
    page = viewer.get(reverse("request", args=[request_id])).text
    assert "Your role (viewer) may not resolve" in page
    assert "What happened" in page and 'name="outcome"' not in page
    form = resolve_form(operator, request_id)
    response = viewer.post(form.action, {**form.fields, **NOT_EXECUTED}, headers=HTMX)
    assert response.status_code == 403
    assert "Allowed: operator, admin." in response.text
    assert lives.read(request_id).result_state == Result.UNKNOWN


def test_a_charge_that_waits_for_a_price_can_only_be_written_off(operator):
    lives.add_service("raw", price_provider="", price_model="")
    usage.change_account(
        account_id="acme", version=1, actor=lives.ACTOR, cap_nano=None, allow_unpriced=True
    )
    fence = lives.dispatched("op-1", service="raw")
    lives.save(lives.answer_of(fence))
    lives.settle(fence.request_id)
    form = resolve_form(operator, fence.request_id)
    assert form.fields["outcome"] == "write_off"
    assert "input_tokens" not in form.fields
    assert send(operator, form, note="A gift.").status_code == 303
    row = Request.objects.get(id=fence.request_id)
    assert (row.billing_state, row.pending_reason) == ("not_charged", "written_off")


def test_a_token_that_was_revoked_before_is_not_revoked_again(admin):
    token = issued()
    form = rendered(admin, "token-revoke", token.id)
    access.revoke_token(token_id=token.id, actor=lives.ACTOR)
    response = send(admin, form, reason="Mine.")
    assert response.status_code == 303
    assert [str(one) for one in get_messages(response.wsgi_request)] == ["It was revoked already."]
    assert Token.objects.get(id=token.id).revoked_at is not None


def test_a_process_without_a_kernel_says_that_it_cannot(operator):
    row = lives.admitted("op-1")
    response = send(operator, rendered(operator, "request-dispatch", row.id), note="Go.")
    assert response.status_code == 503
    assert response["Retry-After"]
    assert "This process runs no kernel." in response.text
    assert "Go." in response.text
    page = operator.get(reverse("reconciliation")).text
    form = form_to(page, reverse("reconciliation-run"))
    assert send(operator, form).status_code == 503
    assert lives.read(row.id).result_state == Result.ADMITTED
