"""Destinations and alert rules on screen: circuit, a test, forms, who may change them (F1, L4)."""

from datetime import timedelta

import pytest
from django.urls import reverse

from kernel import clock
from kernel.access import ensure_roles
from kernel.models import AlertRule, AuditRow, Destination, Notification
from tests.console.views.conftest import rendered, send
from tests.support import delivery_data, lives
from tests.support.pages import form_to

DESTINATION = {
    "account_id": delivery_data.ACCOUNT,
    "destination_id": "new-hooks",
    "channel": "webhook",
    "address": "https://new.example.com/in",
    "events": ["job.finished", "message"],
    "secret_env": "NEW_HOOK_SECRET",
}
RULE = {
    "rule_id": "tell-olga",
    "event_prefix": "request.unknown",
    "destination_id": delivery_data.MAIL,
    "cooldown_seconds": "600",
}
HTMX = {"HX-Request": "true"}


@pytest.fixture
def post(db):
    """An account with its destinations."""
    ensure_roles()
    lives.open_account(delivery_data.ACCOUNT)
    delivery_data.make_destinations()


def test_a_destination_is_added_and_shown_without_any_secret(post, admin, monkeypatch):
    monkeypatch.setenv("NEW_HOOK_SECRET", "whsec_do_not_show_this")
    answer = send(admin, rendered(admin, "destination-new"), **DESTINATION)
    assert (answer.status_code, answer["Location"]) == (
        303,
        reverse("destination", args=["new-hooks"]),
    )
    page = admin.get(answer["Location"]).text
    assert "NEW_HOOK_SECRET" in page and "whsec_do_not_show_this" not in page
    assert "no such variable" not in page
    monkeypatch.delenv("NEW_HOOK_SECRET")
    assert "no such variable" in admin.get(answer["Location"]).text
    assert "new-hooks" in admin.get(reverse("destinations")).text


@pytest.mark.parametrize(
    "field,value",
    [
        ("address", "ftp://new.example.com/x"),
        ("address", "http://127.0.0.1/x"),
        ("secret_env", "whsec_0123456789"),
        ("secret_env", ""),
        ("secret_env", "DJANGO_SECRET_KEY"),
        ("events", []),
        ("account_id", "nobody"),
        ("destination_id", "two words"),
    ],
)
def test_what_the_kernel_refuses_is_an_error_at_its_field_and_nothing_is_lost(
    post, admin, field, value
):
    answer = send(admin, rendered(admin, "destination-new"), **{**DESTINATION, field: value})
    assert answer.status_code == 422
    assert "field-error" in answer.text
    assert {**DESTINATION, field: value}["address"] in answer.text, "what was typed is there"
    assert not Destination.objects.filter(id="new-hooks").exists()


def test_an_id_that_exists_is_a_conflict(post, admin):
    values = {**DESTINATION, "destination_id": delivery_data.HOOKS}
    assert send(admin, rendered(admin, "destination-new"), **values).status_code == 409


def test_a_change_switches_it_off_and_a_stale_form_says_who_was_first(post, admin):
    form = rendered(admin, "destination-change", delivery_data.HOOKS)
    stale = rendered(admin, "destination-change", delivery_data.HOOKS)
    values = {
        "address": "https://hooks.example.com/v3",
        "events": ["job"],
        "secret_env": "SHOP_HOOK_SECRET",
        "reason": "Moved.",
    }
    assert send(admin, form, **values).status_code == 303
    row = Destination.objects.get(id=delivery_data.HOOKS)
    assert (row.active, row.version, row.events_text) == (True, 2, '["job"]')
    late = send(admin, stale, **values)
    assert late.status_code == 409 and "admin" in late.text
    form = rendered(admin, "destination-change", delivery_data.HOOKS)
    off = {name: value for name, value in form.fields.items() if name != "active"}
    assert admin.post(form.action, {**off, **values}).status_code == 303
    page = admin.get(reverse("destination", args=[delivery_data.HOOKS])).text
    assert "Switched off" in page and "Moved." in page


def test_a_test_is_queued_and_its_page_says_what_came_of_it(post, admin):
    page = admin.get(reverse("destination", args=[delivery_data.HOOKS])).text
    form = form_to(page, reverse("destination-test", args=[delivery_data.HOOKS]))
    answer = send(admin, form)
    row = Notification.objects.get(destination_id=delivery_data.HOOKS)
    assert (answer.status_code, answer["Location"]) == (
        303,
        reverse("notification", args=[row.id]),
    )
    assert send(admin, form).status_code == 303, "a double click"
    assert Notification.objects.filter(destination_id=delivery_data.HOOKS).count() == 1
    assert AuditRow.objects.filter(action="destination.test").count() == 1
    delivery_data.attempt(row.id, delivery_data.End("not_sent", "no such host"))
    assert "no such host" in admin.get(answer["Location"]).text
    page = admin.get(reverse("destination", args=[delivery_data.HOOKS])).text
    assert "no such host" in page and "Not sent" in page


def test_one_that_is_off_gets_no_test(post, admin):
    page = admin.get(reverse("destination", args=[delivery_data.OLD])).text
    assert "It is switched off." in page
    address = reverse("destination-test", args=[delivery_data.OLD])
    refused = admin.post(address, {"form_key": "k" * 22})
    assert refused.status_code == 409 and "not active" in refused.text
    assert not Notification.objects.exists()


def test_the_circuit_is_said_in_words_and_opened_again(post, admin):
    address = reverse("destination", args=[delivery_data.HOOKS])
    assert "Accepting" in admin.get(address).text
    Destination.objects.filter(id=delivery_data.HOOKS).update(failures=3)
    assert "3 in a row; at 10 it is closed" in admin.get(address).text
    delivery_data.close(failures=12)
    page = admin.get(address).text
    assert "Nothing is sent there just now" in page and "12 failures in a row" in page
    past = clock.db_now() - timedelta(seconds=1)
    Destination.objects.filter(id=delivery_data.HOOKS).update(closed_until_at=past)
    assert "One message is tried next" in admin.get(address).text
    form = rendered(admin, "destination-open", delivery_data.HOOKS)
    assert send(admin, form, reason="Fixed.").status_code == 303
    row = Destination.objects.get(id=delivery_data.HOOKS)
    assert (row.failures, row.closed_until_at) == (0, None)
    form = rendered(admin, "destination-close", delivery_data.HOOKS)
    assert send(admin, form, seconds="0", reason="x").status_code == 422
    assert send(admin, form, seconds="60", reason="Being moved.").status_code == 303
    assert Destination.objects.get(id=delivery_data.HOOKS).closed_until_at is not None


def test_home_tells_of_dead_letters_closed_destinations_and_overdue_ones(post, operator):
    assert "dead letter" not in operator.get(reverse("home")).text.split("</nav>")[1]
    delivery_data.dead_letter("HTTP 500")
    delivery_data.dead_letter("HTTP 500")
    name = delivery_data.publish()
    late = clock.db_now() - timedelta(minutes=5)
    Notification.objects.filter(id=name).update(due_at=late)
    page = operator.get(reverse("home")).text
    for words in ("2 open dead letters", "1 notification is overdue"):
        assert words in page, words
    delivery_data.close()
    page = operator.get(reverse("home")).text
    assert "1 destination takes nothing just now" in page
    assert "overdue" not in page, "it waits for its destination, which is told already"


def test_the_go_to_box_finds_every_id_of_delivery(post, operator):
    letter = delivery_data.dead_letter("HTTP 500")
    row = delivery_data.plan(destination_id=delivery_data.HOOKS)
    note = Notification.objects.get()
    send_rule()
    for text, name in (
        (letter, "dead-letter"),
        (note.id, "notification"),
        (row.id, "operation"),
        (delivery_data.HOOKS, "destination"),
        ("tell-ops", "alert-rule"),
    ):
        answer = operator.get(reverse("go-to"), {"q": text})
        assert (answer.status_code, answer["Location"]) == (303, reverse(name, args=[text])), text


def send_rule():
    now = clock.db_now()
    AlertRule.objects.create(
        id="tell-ops",
        event_prefix="job",
        destination_id=delivery_data.MAIL,
        created_at=now,
        updated_at=now,
    )


def test_an_alert_rule_is_added_changed_and_switched_off(post, admin):
    answer = send(admin, rendered(admin, "alert-rule-new"), **RULE)
    assert answer.status_code == 303
    page = admin.get(answer["Location"]).text
    assert "request.unknown" in page and delivery_data.MAIL in page
    assert "tell-olga" in admin.get(reverse("alert-rules")).text
    form = rendered(admin, "alert-rule-change", "tell-olga")
    stale = rendered(admin, "alert-rule-change", "tell-olga")
    values = {name: value for name, value in RULE.items() if name != "rule_id"}
    values |= {"cooldown_seconds": "60", "reason": "More often."}
    off = {name: value for name, value in form.fields.items() if name != "active"}
    assert admin.post(form.action, {**off, **values}).status_code == 303
    row = AlertRule.objects.get(id="tell-olga")
    assert (row.active, row.cooldown_seconds) == (False, 60)
    assert "More often." in admin.get(reverse("alert-rule", args=["tell-olga"])).text
    late = send(admin, stale, **values)
    assert late.status_code == 409 and "More often." in late.text


@pytest.mark.parametrize(
    "field,value",
    [("cooldown_seconds", "0"), ("event_prefix", "message"), ("destination_id", "nobody")],
)
def test_a_wrong_rule_is_refused_at_its_field(post, admin, field, value):
    answer = send(admin, rendered(admin, "alert-rule-new"), **{**RULE, field: value})
    assert answer.status_code == 422 and "field-error" in answer.text
    assert not AlertRule.objects.exists()


@pytest.mark.parametrize("role", ["viewer", "approver", "operator"])
def test_only_who_configures_changes_destinations_and_rules(post, signed_in, role):
    client = signed_in(role)
    send_rule()
    assert "Your role" in client.get(reverse("destination", args=[delivery_data.HOOKS])).text
    data = {"form_key": "k" * 22, "reason": "x"}
    for name, args in (
        ("destination-new", []),
        ("destination-change", [delivery_data.HOOKS]),
        ("destination-test", [delivery_data.HOOKS]),
        ("destination-close", [delivery_data.HOOKS]),
        ("destination-open", [delivery_data.HOOKS]),
        ("alert-rule-new", []),
        ("alert-rule-change", ["tell-ops"]),
    ):
        address = reverse(name, args=args)
        assert client.post(address, data, headers=HTMX).status_code == 403
        assert client.get(address).status_code == 403, name
    assert not Notification.objects.exists()


@pytest.mark.parametrize("path", ["/destinations/none/", "/alert-rules/none/change/"])
def test_what_does_not_exist_is_404(post, admin, path):
    assert admin.get(path).status_code == 404
