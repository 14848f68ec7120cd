"""Who may do what: denied by default, by role, with a reason (L2; console cases 25, 32, 40)."""

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import get_resolver

from console.access import (
    PERMISSIONS,
    ROLES,
    ability,
    is_public,
    needs,
    permissions_of,
)
from kernel import access
from kernel.access import ensure_roles
from kernel.models import AuditRow

HTMX = {"HX-Request": "true"}


def test_roles_are_groups_made_once(db):
    for _ in range(2):
        ensure_roles()
        assert set(Group.objects.values_list("name", flat=True)) == set(ROLES)


def test_the_console_gives_permissions_to_exactly_the_kernels_roles():
    assert list(ROLES) == list(access.ROLES)


def test_every_role_may_look_and_only_admin_may_do_everything():
    assert all("view" in granted for granted in ROLES.values())
    assert [role for role in ROLES if ROLES[role] == frozenset(PERMISSIONS)] == ["admin"]


def test_an_operator_does_not_decide_and_an_approver_does_not_operate():
    assert "decide" not in ROLES["operator"]
    assert "operate" not in ROLES["approver"]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("permission", PERMISSIONS)
def test_the_matrix_of_roles_is_what_the_server_checks(person, role, permission):
    user = person("olga", role)
    answer = ability(user, permission)
    assert bool(answer) == (permission in ROLES[role])
    assert answer.allowed or role in answer.reason


def test_two_roles_add_up(person):
    assert permissions_of(person("olga", "approver", "operator")) == {"view", "decide", "operate"}


def test_a_superuser_is_an_admin_and_an_inactive_one_is_nobody(person):
    user = person("root")
    user.is_superuser = True
    assert permissions_of(user) == frozenset(PERMISSIONS)
    inactive = person("gone", "admin")
    inactive.is_active = False
    assert permissions_of(inactive) == frozenset()


def test_roles_are_read_once_per_person(person, django_assert_num_queries):
    user = person("olga", "viewer")
    with django_assert_num_queries(1):
        for permission in PERMISSIONS:
            ability(user, permission)


def test_a_stranger_is_sent_to_the_sign_in_page_and_back(db):
    response = Client().get("/requests?result=unknown")
    assert response.status_code == 302
    assert response["Location"] == "/sign-in?next=%2Frequests%3Fresult%3Dunknown"


def test_a_strangers_htmx_request_gets_401_with_a_redirect(db):
    response = Client().get(
        "/requests", headers={**HTMX, "HX-Current-URL": "http://testserver/requests?account=a"}
    )
    assert response.status_code == 401
    assert response["HX-Redirect"] == "/sign-in?next=%2Frequests%3Faccount%3Da&ended=1"


def test_the_way_back_never_leads_to_another_host(db):
    hosts = ("https://evil.example/x", "//evil.example", "http://testserver.evil.example/")
    for address in (*hosts, "/\\evil.example", "http://testserver/\\evil.example"):
        response = Client().get("/requests", headers={**HTMX, "HX-Current-URL": address})
        assert response["HX-Redirect"] == "/sign-in?next=%2F&ended=1"


def test_a_form_sent_after_the_sign_in_ended_keeps_what_was_typed(db):
    response = Client().post(
        "/act",
        {"note": "Provider says: never executed.", "form_key": "k", "password": "hunter2"}
        | {"step_up_code": "unused-0001", "code": "unused-0002", "credential": "unused-0003"},
        headers={"Origin": "http://testserver", "Referer": "http://testserver/act"},
    )
    assert response.status_code == 401
    assert "Provider says: never executed." in response.text
    assert "hunter2" not in response.text and "unused-000" not in response.text
    assert "next=%2Fact" in response.text


def test_a_foreign_page_cannot_put_its_words_on_ours(db):
    response = Client().post(
        "/act", {"note": "call 555"}, headers={"Origin": "https://evil.example"}
    )
    assert response.status_code == 401
    assert "call 555" not in response.text


def test_a_view_that_declares_nothing_is_refused_even_to_an_admin(signed_in):
    client = signed_in("admin", raise_request_exception=False)
    response = client.get("/undeclared")
    assert response.status_code == 500
    assert "nobody said" not in response.text


def test_a_public_view_needs_no_sign_in(db):
    assert Client().get("/public").text == "public"


def test_a_missing_permission_is_403_with_the_reason(signed_in):
    response = signed_in("operator").get("/configure")
    assert response.status_code == 403
    assert "Your role (operator) may not change accounts" in response.text
    assert "Allowed: admin." in response.text
    assert signed_in("admin").get("/configure").text == "configured"


def test_the_reason_comes_as_a_part_when_htmx_asks(signed_in):
    response = signed_in("viewer").get("/configure", headers=HTMX)
    assert response.status_code == 403
    assert "<html" not in response.text
    assert "Allowed: admin." in response.text


def test_the_server_checks_the_post_again_whatever_the_button_showed(signed_in):
    viewer = signed_in("viewer")
    assert viewer.get("/act").status_code == 200
    assert viewer.post("/act", {"note": "x"}).status_code == 403
    row = AuditRow.objects.get(action="person.refused")
    assert (row.actor_id, "/act" in row.after_text) == ("viewer", True)


def test_a_person_without_a_role_sees_nothing(signed_in):
    response = signed_in().get("/")
    assert response.status_code == 403
    assert "Your role (none)" in response.text


def test_an_unknown_permission_is_a_mistake_of_the_program():
    with pytest.raises(ImproperlyConfigured):
        needs("fly")


def views_of(patterns):
    for pattern in patterns:
        if hasattr(pattern, "url_patterns"):
            if pattern.app_name != "admin":
                yield from views_of(pattern.url_patterns)
        else:
            yield pattern


def test_every_view_of_the_console_is_public_or_declares_a_permission():
    for pattern in views_of(get_resolver("console.urls").url_patterns):
        assert is_public(pattern.callback) or hasattr(pattern.callback, "needs"), pattern
