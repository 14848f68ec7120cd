"""Second factors: asked for at sign-in, set up under Your account, reset by an admin (L2)."""

import re
from importlib import import_module

import pytest
from allauth.mfa.models import Authenticator
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client

from kernel.access import accept_code, factor_used, remove_factor, reset_factors
from kernel.audit import Actor, verify
from kernel.conf import override
from kernel.errors import NotFound
from kernel.models import AuditRow, ConsoleSession
from tests.console.views.conftest import rendered, send
from tests.support.pages import form_to
from tests.support.second_factors import SECRET, code, key_on, sign_in, with_app

FACTOR = "/sign-in/factor/"


@pytest.fixture
def olga(person):
    return person("olga", "operator")


def acts(action):
    return list(AuditRow.objects.filter(action=action).order_by("at"))


def test_a_password_alone_signs_in_who_has_no_factor_and_it_is_in_the_trail(olga):
    assert sign_in(Client(), to="/requests/?result=unknown") == "/requests/?result=unknown"
    (row,) = acts("sign_in.done")
    assert (row.actor_id, row.subject) == ("olga", f"sign_in:user-{olga.pk}")
    assert '"how": "password"' in row.after_text and "127.0.0.1" in row.after_text


def test_with_an_app_the_password_is_half_of_it(olga):
    with_app(olga)
    client = Client()
    assert sign_in(client, to="/jobs/") == FACTOR
    assert client.get("/").status_code == 302, "not signed in yet"
    assert not acts("sign_in.done")
    assert client.post(FACTOR, {"code": "000000"}).status_code == 422
    response = client.post(FACTOR, {"code": code()})
    assert (response.status_code, response["Location"]) == (302, "/jobs/")
    assert client.get("/").status_code == 200
    assert "password + second factor" in acts("sign_in.done")[0].after_text


def test_a_code_works_once_whatever_process_sees_it(olga):
    with_app(olga)
    shown = code()
    first, second = Client(), Client()
    for client in (first, second):
        sign_in(client)
    assert first.post(FACTOR, {"code": shown}).status_code == 302
    cache.clear()  # as another process would find it
    assert second.post(FACTOR, {"code": f"{shown[:3]} {shown[3:]}"}).status_code == 422


def test_a_recovery_code_works_once(olga):
    one, *_others = with_app(olga)
    for status in (302, 422):
        client = Client()
        sign_in(client)
        assert client.post(FACTOR, {"code": one}).status_code == status


def remove_while_read(user, monkeypatch):
    """Another tab removes every factor right after the app's code was found right."""
    app = import_module("allauth.mfa.totp.internal.auth").TOTP
    was = app.validate_code

    def validate(self, code):
        right = was(self, code)
        Authenticator.objects.filter(user=user).delete()
        return right

    monkeypatch.setattr(app, "validate_code", validate)


def test_a_factor_that_another_tab_removed_meanwhile_proves_nothing(olga, monkeypatch):
    with_app(olga)
    client = Client()
    sign_in(client)
    remove_while_read(olga, monkeypatch)
    assert client.post(FACTOR, {"code": code()}).status_code == 422
    assert not Authenticator.objects.filter(user=olga).exists(), "a use brings nothing back"
    again = client.get(FACTOR)
    assert again.status_code == 302 and again["Location"].startswith("/sign-in/")
    assert sign_in(Client()) == "/", "the password alone signs in now"


def test_two_tabs_cannot_use_one_recovery_code_and_none_brings_its_row_back(olga):
    one, *_others = with_app(olga)
    first = accept_code(user=olga, code=one)
    assert (first, accept_code(user=olga, code=one)) == ("recovery_codes", "")
    (row,) = Authenticator.objects.filter(user=olga, type="recovery_codes")
    assert row.last_used_at is not None
    remove_factor(
        user=olga,
        factor_id=Authenticator.objects.get(user=olga, type="totp").pk,
        actor=Actor("user", "olga"),
    )
    assert accept_code(user=olga, code=_others[0]) == ""
    assert not Authenticator.objects.filter(user=olga).exists()
    assert factor_used(factor_id=row.pk) is False


def test_guessing_codes_is_throttled_without_locking_the_password(olga):
    with_app(olga)
    client = Client()
    sign_in(client)
    with override(sign_in_tries_max=3):
        for _try in range(3):
            assert client.post(FACTOR, {"code": "000000"}).status_code == 422
        response = client.post(FACTOR, {"code": code()})
        assert response.status_code == 429
        assert 0 < int(response["Retry-After"]) <= 300
        assert sign_in(Client()) == FACTOR


def test_the_second_step_without_the_first_leads_home(olga):
    with_app(olga)
    assert Client().get(FACTOR)["Location"] == "/"
    assert Client().post(FACTOR, {"code": code()})["Location"] == "/"


def test_setting_up_an_app_shows_recovery_codes_once_and_no_secret_later(olga):
    client = Client()
    sign_in(client)
    form = rendered(client, "you-app")
    secret = client.session["totp_secret"]
    page = send(client, form, code="123456")
    assert page.status_code == 422 and key_on(page.text) == secret
    page = send(client, form, code=code(secret))
    assert page.text.count('<li class="mono">') == 10
    stored = Authenticator.objects.get(type="totp")
    assert secret not in str(stored.data), "encrypted"
    you = client.get("/you/").text
    assert secret not in you and "10 codes left" in you
    assert [row.actor_id for row in acts("person.factor_add")] == ["olga"]
    assert list(verify()) == []
    assert send(client, form, code=code(secret)).status_code == 303, "told that it was done"
    second = rendered(client, "you-app")
    shown = code(client.session["totp_secret"])
    assert send(client, second, code=shown).status_code in (409, 422), "one app only"


def test_factors_are_removed_and_codes_renewed_by_their_person_only(olga, person, signed_in):
    old = with_app(olga)
    client = Client()
    client.force_login(olga)
    page = send(client, rendered(client, "you-codes")).text
    assert page.count('<li class="mono">') == 10 and old[0] not in page
    factor = Authenticator.objects.get(type="totp")
    other = signed_in("admin")
    assert other.get(f"/you/factors/{factor.pk}/remove/").status_code == 404
    assert other.post(f"/you/factors/{factor.pk}/remove/").status_code == 404
    response = send(client, rendered(client, "you-factor-remove", factor.pk))
    assert response.status_code == 303
    assert not Authenticator.objects.exists(), "codes without a factor stand for nothing"
    assert len(acts("person.recovery_codes")) == len(acts("person.factor_remove")) == 1


def test_an_admin_resets_the_factors_of_another_and_that_signs_them_out(olga, signed_in):
    with_app(olga)
    theirs = Client()
    theirs.force_login(olga)
    assert theirs.get("/").status_code == 200
    admin = signed_in("admin")
    assert "Factors…" in admin.get("/people/").text
    response = send(admin, rendered(admin, "person-factors", "olga"), reason="lost the phone")
    assert response.status_code == 303
    assert theirs.get("/").status_code == 302
    assert sign_in(Client()) == "/"
    (row,) = acts("person.factors_reset")
    assert (row.actor_id, row.reason, "totp" in row.before_text) == (
        "admin",
        "lost the phone",
        True,
    )


def test_the_command_resets_factors_too(olga, capsys):
    with_app(olga)
    call_command("person", "reset-factors", "olga", reason="by phone")
    assert "Removed 2 second factors of olga" in capsys.readouterr().out
    assert not Authenticator.objects.exists()
    assert acts("person.factors_reset")[0].actor_kind == "command"


def test_nobody_resets_their_own(person, signed_in):
    admin = signed_in("admin")
    assert send(admin, rendered(admin, "person-factors", "admin"), reason="x").status_code == 422


def test_a_role_that_must_have_a_factor_is_confined_until_it_has_one(olga, settings):
    settings.MFA_ROLES = frozenset({"operator"})
    client = Client()
    sign_in(client)
    assert client.get("/requests/")["Location"] == "/you/"
    htmx = client.get("/requests/", headers={"HX-Request": "true"})
    assert (htmx.status_code, htmx["HX-Redirect"]) == (401, "/you/")
    assert client.get("/admin/")["Location"] == "/you/"
    assert "Your role needs a second factor" in client.get("/you/").text
    form = rendered(client, "you-app")
    send(client, form, code=code(client.session["totp_secret"]))
    assert client.get("/requests/").status_code == 200
    factor = Authenticator.objects.get(type="totp")
    assert send(client, rendered(client, "you-factor-remove", factor.pk)).status_code == 422
    other = Client()
    other.force_login(olga)  # signed in before the role asked for it
    assert other.get("/requests/")["Location"].startswith("/sign-in/")


def test_a_proof_counts_only_while_there_is_a_factor(olga, settings):
    client = Client()
    sign_in(client)
    form = rendered(client, "you-app")
    send(client, form, code=code(client.session["totp_secret"]))
    Authenticator.objects.all().delete()
    settings.MFA_ROLES = frozenset({"operator"})
    assert client.get("/requests/")["Location"] == "/you/"


def test_other_roles_are_left_alone(olga, settings):
    settings.MFA_ROLES = frozenset({"admin"})
    client = Client()
    sign_in(client)
    assert client.get("/requests/").status_code == 200


def test_a_browser_that_proved_a_factor_for_one_person_did_not_for_the_next(olga, person, settings):
    with_app(person("marek", "operator"))
    client = Client()
    sign_in(client, "marek")
    client.post(FACTOR, {"code": code()})
    settings.MFA_ROLES = frozenset({"operator"})
    client.post("/sign-out/")
    sign_in(client, "olga")
    assert client.get("/requests/")["Location"] == "/you/"


def test_ones_own_password_needs_the_old_one_and_ends_the_other_places(olga):
    here, there = Client(), Client()
    for client in (here, there):
        sign_in(client)
    form = rendered(here, "you-password")
    new = {"new_password": "battery staple 9", "again_password": "battery staple 9"}
    assert send(here, form, password="wrong", **new).status_code == 422
    assert send(here, form, password="correct horse", new_password="a", again_password="b")
    assert send(here, form, password="correct horse", **new).status_code == 303
    assert here.get("/").status_code == 200
    assert there.get("/").status_code == 302
    assert sign_in(Client(), password="battery staple 9") == "/"
    assert "battery" not in str(AuditRow.objects.values_list())


def test_places_where_one_is_signed_in_are_listed_and_ended(olga, person, signed_in):
    here, there = Client(), Client(headers={"User-Agent": "Other <b>Browser</b>"})
    for client in (here, there):
        sign_in(client)
    page = here.get("/you/").text
    assert "Other &lt;b&gt;Browser&lt;/b&gt;" in page and "<b>Browser" not in page
    assert here.session.session_key not in page and there.session.session_key not in page
    (address,) = {
        line.split('"')[0]
        for line in page.split('action="')[1:]
        if "sign-ins/" in line and not line.startswith("/you/sign-ins/end/")
    }
    marek = signed_in("admin")
    marek.get("/")
    assert send(marek, rendered_end(here, address)).status_code == 404, "not theirs"
    assert there.get("/").status_code == 200
    assert send(here, rendered_end(here, address)).status_code == 303
    assert (there.get("/").status_code, here.get("/").status_code) == (302, 200)
    sign_in(there)
    assert send(here, rendered_end(here, "/you/sign-ins/end/")).status_code == 303
    assert there.get("/").status_code == 302
    assert ConsoleSession.objects.filter(person_id=olga.pk).count() == 1
    assert len(acts("sign_in.ended")) == 2


def rendered_end(client, address):
    return form_to(client.get("/you/").text, address)


def test_reset_refuses_who_is_not_there(db):
    with pytest.raises(NotFound):
        reset_factors(name="nobody", actor=Actor("command", "root"))


def test_a_factor_of_an_older_secret_key_is_still_read(olga, settings):
    with_app(olga)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another one"
    client = Client()
    sign_in(client)
    assert client.post(FACTOR, {"code": code(SECRET)}).status_code == 302


def test_the_key_is_read_in_fours_and_copied_whole(olga):
    client = Client()
    sign_in(client)
    response = client.get("/you/app/")
    key = key_on(response.text)
    shown = re.findall(r"<span>([A-Z2-7]{1,4})</span><wbr>", response.text)
    assert "".join(shown) == key and {len(one) for one in shown} == {4}
    assert f'data-copy="{key}"' in response.text
    footer = response.text[response.text.index('id="request-of-page"') :]
    assert f'data-copy="{response["X-Request-Id"]}"' in footer
