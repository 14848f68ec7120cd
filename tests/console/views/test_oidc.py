"""Single sign-on against a provider of our own: linked identities only, by exact subject (L2)."""

import base64
import json
import time
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount import providers
from allauth.socialaccount.models import SocialAccount
from django.apps import apps
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from console import oidc
from console.oidc_settings import mfa_roles
from console.oidc_settings import oidc as oidc_of
from kernel.conf import override
from kernel.models import AuditRow
from tests.support.pages import form_to
from tests.support.second_factors import sign_in, with_app

ISSUER = "https://id.example"
ENVIRON = {
    "BAILING_OIDC_URL": ISSUER,
    "BAILING_OIDC_CLIENT_ID": "bailing",
    "BAILING_OIDC_CLIENT_SECRET": "s3cret",
    "BAILING_OIDC_NAME": "Example ID",
}
CONFIG = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "userinfo_endpoint": f"{ISSUER}/me",
    "jwks_uri": f"{ISSUER}/keys",
    "token_endpoint_auth_methods_supported": ["client_secret_post"],
}


class Provider:
    """Answers allauth's calls: who signed in there is `subject`."""

    def __init__(self) -> None:
        self.subject, self.info_subject, self.away = "abc", "", False
        self.asked: list[dict[str, str]] = []

    def __enter__(self) -> "Provider":
        return self

    def __exit__(self, *error: Any) -> None:
        """Nothing to close."""

    def get(self, url: str, **kwargs: Any) -> Any:
        if self.away:
            raise OSError("no route")
        known = {"/me": {"sub": self.info_subject or self.subject}}
        return self._answer(known.get(urlsplit(url).path, CONFIG))

    def request(self, method: str, url: str, **kwargs: Any) -> Any:
        self.asked.append(dict(kwargs.get("data") or kwargs.get("params") or {}))
        return self._answer({"access_token": "at", "id_token": self._token()})

    def _token(self) -> str:
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": "bailing", "sub": self.subject, "iat": now}
        parts = ({"alg": "RS256", "kid": "1"}, {**claims, "exp": now + 60})
        raw = [base64.urlsafe_b64encode(json.dumps(one).encode()) for one in parts]
        coded = [one.decode().strip("=") for one in raw]
        return ".".join([*coded, "c2ln"])

    def _answer(self, document: Any) -> Any:
        return SimpleNamespace(
            status_code=200,
            headers={"content-type": "application/json"},
            json=lambda: document,
            text=json.dumps(document),
            raise_for_status=lambda: None,
        )


@pytest.fixture
def provider(settings, monkeypatch):
    """The provider, set up in the settings as its environment would."""
    settings.OIDC = oidc_of(ENVIRON)
    settings.INSTALLED_APPS = [
        *settings.INSTALLED_APPS,
        "allauth.socialaccount.providers.openid_connect",
    ]
    assert apps.is_installed("allauth.socialaccount.providers.openid_connect")
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [settings.OIDC.app()]}}
    monkeypatch.setattr(providers, "registry", providers.ProviderRegistry())
    found = Provider()
    monkeypatch.setattr(oidc.IdentityAdapter, "get_requests_session", lambda self: found)
    return found


@pytest.fixture
def olga(person):
    return person("olga", "operator")


def come_back(client: Client, address: str) -> Any:
    """What the provider's redirect back to us answers."""
    asked = parse_qs(urlsplit(address).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["scope"] == ["openid"]
    return client.get("/sign-in/sso/callback/", {"code": "c", "state": asked["state"][0]})


def link(client: Client) -> Any:
    page = client.post("/you/sso/link/")
    assert page.status_code == 200
    address = page.text.split('href="https://id.example')[1].split('"')[0].replace("&amp;", "&")
    return come_back(client, f"https://id.example{address}")


def sign_in_there(client: Client) -> Any:
    return come_back(client, client.get("/sign-in/sso/?next=/jobs/")["Location"])


def test_an_identity_that_nobody_linked_opens_nothing(provider, olga):
    client = Client()
    assert "Sign in with Example ID" in client.get("/sign-in/").text
    page = sign_in_there(client)
    assert page.status_code == 403 and "Nobody here has linked" in page.text
    assert client.get("/").status_code == 302
    assert (User.objects.count(), SocialAccount.objects.count()) == (1, 0)


def test_a_linked_identity_signs_in_by_its_exact_subject(provider, olga, person):
    owner = Client()
    sign_in(owner)
    assert link(owner)["Location"] == "/you/"
    assert AuditRow.objects.filter(action="person.identity_link").count() == 1
    client = Client()
    assert sign_in_there(client)["Location"] == "/jobs/"
    assert client.get("/you/").text.count("olga") >= 1
    provider.subject = "ABC"  # MySQL finds abc where ABC is asked for
    assert sign_in_there(Client()).status_code == 403
    provider.subject, provider.info_subject = "abc", "xyz"
    assert sign_in_there(Client()).status_code == 403, "two subjects in one answer"


def test_an_identity_belongs_to_one_person_and_can_be_unlinked(provider, olga, person):
    person("marek", "operator")
    first, second = Client(), Client()
    sign_in(first)
    sign_in(second, "marek")
    link(first)
    link(second)
    assert "linked with another person" in second.get("/you/").text
    assert SocialAccount.objects.get().user == olga
    form = form_to(first.get("/you/").text, "/you/sso/unlink/")
    assert first.post(form.action, form.fields).status_code == 303
    assert sign_in_there(Client()).status_code == 403


def test_the_second_factor_is_asked_after_single_sign_on_too(provider, olga):
    owner = Client()
    sign_in(owner)
    link(owner)
    with_app(olga)
    client = Client()
    assert sign_in_there(client)["Location"] == "/sign-in/factor/"
    assert client.get("/").status_code == 302
    assert Authenticator.objects.count() == 2


def test_a_closed_account_is_not_opened_by_its_identity(provider, olga):
    owner = Client()
    sign_in(owner)
    link(owner)
    User.objects.filter(pk=olga.pk).update(is_active=False)
    client = Client()
    assert sign_in_there(client)["Location"] == "/sign-in/"
    assert client.get("/").status_code == 302


def test_an_answer_that_this_browser_did_not_ask_for_is_refused(provider, olga):
    asking, other = Client(), Client()
    address = asking.get("/sign-in/sso/")["Location"]
    page = come_back(other, address)
    assert page.status_code == 502 and "did not sign you in" in page.text


def test_a_provider_that_is_away_is_said_so(provider, olga):
    provider.away = True
    page = Client().get("/sign-in/sso/")
    assert page.status_code == 502 and "cannot be reached" in page.text


def test_many_starts_from_one_address_wait_and_do_not_ask_the_provider(provider, olga):
    with override(sign_in_tries_max=1):
        for _start in range(10):
            assert Client().get("/sign-in/sso/").status_code == 302
        provider.away = True
        page = Client().get("/sign-in/sso/")
        assert page.status_code == 429 and "Too many tries" in page.text
        assert 0 < int(page["Retry-After"]) <= 300
        elsewhere = Client(REMOTE_ADDR="203.0.113.9").get("/sign-in/sso/")
        assert elsewhere.status_code == 502, "another address is not counted here"
        assert sign_in(Client()) == "/", "and a password still signs in"


def test_without_its_settings_there_is_no_single_sign_on(db):
    assert "or" not in Client().get("/sign-in/").text.split("</form>")[1]
    for path in ("/sign-in/sso/", "/sign-in/sso/callback/?code=c&state=s"):
        assert Client().get(path).status_code == 404


@pytest.mark.parametrize("lacks", ["BAILING_OIDC_CLIENT_ID", "BAILING_OIDC_CLIENT_SECRET"])
def test_settings_that_are_not_whole_stop_the_start(lacks):
    with pytest.raises(ImproperlyConfigured, match=lacks):
        oidc_of({**ENVIRON, lacks: ""})
    with pytest.raises(ImproperlyConfigured, match="https"):
        oidc_of({**ENVIRON, "BAILING_OIDC_URL": "http://id.example"})
    assert oidc_of({}) is None
    assert "s3cret" not in repr(oidc_of(ENVIRON))


def test_a_role_that_does_not_exist_stops_the_start():
    assert mfa_roles({"BAILING_MFA_ROLES": "admin, operator"}) == {"admin", "operator"}
    with pytest.raises(ImproperlyConfigured, match="root"):
        mfa_roles({"BAILING_MFA_ROLES": "root"})
