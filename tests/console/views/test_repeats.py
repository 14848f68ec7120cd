"""A form that was carried out before: where its repeat leads and what it says (L2; case 49)."""

import re

import pytest
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.urls import reverse

from kernel import access
from kernel.models import AuditRow, Operation, Token
from tests.console.views.conftest import rendered, send
from tests.support import lives
from tests.support.pages import form_to
from tests.support.second_factors import code, key_on, with_app

pytestmark = pytest.mark.usefixtures("acme")

PERSON = {"name": "ida", "role": "operator"}
TOKEN = {"account_id": "acme", "name": "ci", "scopes": "usage:read"}
SECRETS = {
    "token-new": (TOKEN, (), ("tokens", "issue another with New token")),
    "person-new": (PERSON, (), ("people", "make another with Password…")),
    "person-password": ({}, ("petra",), ("people", "make another with Password…")),
    "you-codes": ({}, (), ("you", "make others with New codes…")),
}


def told(response):
    return [str(one) for one in get_messages(response.wsgi_request)][-1]


@pytest.mark.parametrize("name", SECRETS)
def test_the_repeat_of_a_form_that_made_a_secret_says_that_it_was_shown_once_and_what_to_do(
    admin, name
):
    values, arguments, (place, way) = SECRETS[name]
    access.add_person(
        name="petra", role="viewer", password="a long first password", actor=lives.ACTOR
    )
    if name == "you-codes":
        with_app(User.objects.get(username="admin"))
    form = rendered(admin, name, *arguments)
    answers = [send(admin, form, **values) for _ in range(5)]
    assert [one.status_code for one in answers] == [200, 303, 303, 303, 303]
    (secret, *_more) = re.findall(r'data-copy="([^"]{8,})"', answers[0].text)
    for repeat in answers[1:]:
        assert repeat["Location"] == reverse(place)
    text = told(answers[-1])
    assert text.startswith("This form was carried out once, just now; nothing was done again.")
    assert "in the first answer only and cannot be shown again" in text and way in text
    assert secret not in admin.get(reverse(place)).text
    assert AuditRow.objects.filter(act_key=form.fields["form_key"]).count() == 1


def test_the_repeat_of_setting_up_an_app_is_no_wrong_code(person, client):
    client.force_login(person("olga", "operator"))
    page = client.get(reverse("you-app")).text
    form = form_to(page, reverse("you-app"))
    shown = code(key_on(page))
    assert send(client, form, code=shown).status_code == 200
    again = send(client, form, code=shown)
    assert (again.status_code, again["Location"]) == (303, reverse("you"))
    assert "If recovery codes were made with it" in told(again)
    assert User.objects.get(username="olga").authenticator_set.filter(type="totp").count() == 1


@pytest.mark.parametrize("name", ["audit-plan", "requests-export"])
def test_the_repeat_of_an_export_plan_leads_to_the_export(operator, name):
    lives.settled("op-1")
    address = f"{reverse(name)}?{'who=tests' if name == 'audit-plan' else 'account=acme'}"
    form = form_to(operator.get(address).text, address)
    first = send(operator, form, reason="For the auditors.", format="csv")
    second = send(operator, form, reason="For the auditors.", format="csv")
    row = Operation.objects.get()
    assert first["Location"] == second["Location"] == reverse("operation", args=[row.id])
    assert "carried out once" in told(second)


def test_the_repeat_of_a_form_that_made_an_object_leads_to_the_object(admin):
    form = rendered(admin, "account-new")
    values = {"account_id": "new", "name": "New", "multiplier_millionths": "1"}
    leads = {send(admin, form, **values)["Location"] for _ in range(2)}
    assert leads == {reverse("account", args=["new"])}


def test_a_repeat_is_told_on_the_page_where_it_leads(admin):
    form = rendered(admin, "token-new")
    send(admin, form, **TOKEN)
    page = admin.post(form.action, {**form.fields, **TOKEN}, follow=True).text
    assert "The token is issued; its secret was in the first answer only" in page
    assert Token.objects.count() == 1
