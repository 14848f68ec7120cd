"""The stock admin: raw rows for staff, read-only, no COUNT, nothing past the audit trail."""

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import NoReverseMatch, reverse

from console import admin as console_admin
from console.admin import MODELS, raw_rows
from kernel import access
from kernel.models import Approval, DeadLetter, Job, Notification, Request, Token, ToolCall
from tests.support import lives, work_data
from tests.support.pages import policy_faults


@pytest.fixture(autouse=True)
def real_addresses(settings):
    settings.ROOT_URLCONF = "console.urls"


@pytest.fixture
def staff(person):
    user = person("sasha", "admin")
    User.objects.filter(pk=user.pk).update(is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def rows(db):
    lives.open_account()
    lives.add_service()
    access.issue_token(account_id="acme", name="ci", scopes=["usage:read"], actor=lives.ACTOR)
    return [lives.settled(f"op-{number}") for number in range(3)]


def page_of(model, what="changelist", *args):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{what}", args=args)


@pytest.mark.parametrize("model", MODELS)
def test_every_table_can_be_looked_at(staff, rows, model):
    answer = staff.get(page_of(model))
    assert answer.status_code == 200
    assert not policy_faults(answer.text)
    row = model.objects.first()
    if row is not None:
        one = staff.get(page_of(model, "change", row.pk))
        assert one.status_code == 200
        assert 'name="_save"' not in one.text and not policy_faults(one.text)


@pytest.mark.parametrize("model", MODELS)
def test_no_table_can_be_changed(staff, rows, model):
    row = model.objects.first()
    before = list(model.objects.values())
    assert staff.get(page_of(model, "add")).status_code == 403
    assert staff.post(page_of(model, "add"), {}).status_code == 403
    if row is not None:
        assert staff.post(page_of(model, "change", row.pk), {}).status_code == 403
        assert staff.post(page_of(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    values = {"action": "delete_selected", "_selected_action": [getattr(row, "pk", "x")]}
    staff.post(page_of(model), values)
    assert list(model.objects.values()) == before


def test_people_and_groups_are_not_here(staff):
    for name in ("auth_user", "auth_group", "sessions_session"):
        with pytest.raises(NoReverseMatch):
            reverse(f"admin:{name}_changelist")
    assert User not in raw_rows._registry


def test_a_list_never_counts_and_reads_a_bounded_number_of_rows(staff, rows, monkeypatch):
    monkeypatch.setattr(console_admin.RawRowsAdmin, "list_per_page", 2)
    with CaptureQueriesContext(connection) as captured:
        assert staff.get(page_of(Request)).status_code == 200
    statements = [one["sql"] for one in captured]
    assert not [sql for sql in statements if "COUNT(" in sql.upper()]
    assert all("LIMIT" in sql for sql in statements if "bz_usage_requests" in sql)


def test_a_list_reaches_the_newest_rows_and_says_how_many(staff, rows, monkeypatch):
    monkeypatch.setattr(console_admin, "ROWS_REACHED_MAX", 2)
    page = staff.get(page_of(Request)).text
    assert "2 results" in page or "2 requests" in page


def test_a_row_is_found_by_its_exact_key(staff, rows):
    page = staff.get(page_of(Request), {"q": rows[0].id}).text
    assert rows[0].id in page and rows[1].id not in page


def test_hashes_of_secrets_fences_and_bodies_are_left_out(staff, rows):
    token = Token.objects.get()
    page = staff.get(page_of(Token, "change", token.pk)).text
    assert token.name in page and token.secret_sha256 not in page
    fence = Request.objects.first().fence_token
    assert fence and fence not in staff.get(page_of(Request, "change", rows[0].pk)).text


def test_what_the_screens_show_masked_is_left_out(staff, db):
    lives.open_account(work_data.ACCOUNT)
    lives.add_service("gpt-main")
    work_data.tools_and_routes()
    headers = {"Authorization": f"Bearer {work_data.SECRET}"}
    asked = work_data.refund("order-7", headers=headers)
    assert work_data.SECRET in Approval.objects.get().arguments_text
    for model in (Approval, ToolCall, Job):
        row = model.objects.get()
        text = staff.get(page_of(model)).text + staff.get(page_of(model, "change", row.pk)).text
        assert asked.job_id in text and work_data.SECRET not in text
    for model in (Notification, DeadLetter):
        shown = {field.name for field in raw_rows._registry[model]._shown()}
        assert "recipient" not in shown and "content" not in shown


@pytest.mark.parametrize("role", ["viewer", "approver", "operator"])
def test_only_staff_comes_in(signed_in, rows, role):
    answer = signed_in(role).get(page_of(Request), follow=True)
    assert answer.redirect_chain[-1][0] == reverse("home")
    assert rows[0].id not in answer.text or "Raw" not in answer.text


def test_a_stranger_is_sent_to_our_sign_in_and_never_to_the_admins(client, rows):
    answer = client.get(page_of(Request))
    assert answer.status_code == 302
    assert answer["Location"].startswith(f"{reverse('sign-in')}?next=")
    assert client.get(reverse("admin:login"))["Location"].startswith(reverse("sign-in"))


def test_staff_without_a_role_stays_outside(person, rows):
    user = person("lee")
    User.objects.filter(pk=user.pk).update(is_staff=True)
    client = Client()
    client.force_login(user)
    assert client.get(page_of(Request)).status_code == 403


def test_passwords_are_not_changed_here(staff):
    assert staff.get("/admin/password_change/").status_code == 404
    assert staff.post("/admin/password_change/", {}).status_code == 404
    assert "Back to the console" in staff.get(reverse("admin:index")).text
