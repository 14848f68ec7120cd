"""Headers, cookies and addresses as they leave the whole application behind TLS (E5)."""

import re

import pytest

from console.proxies import networks
from kernel.models import AuditRow
from tests.api.conftest import Api
from tests.support.fixtures import provider, provider_process, shop
from tests.support.product import client_of, look, make_token, running_kernel

__all__ = ["provider", "provider_process", "shop"]

BY_PROXY = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "6.6.6.6, 203.0.113.9"}
STRICT = ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'")


@pytest.fixture
async def installed(shop, settings):
    """A kernel, as it is behind a proxy on this host that ends TLS."""
    settings.ALLOWED_HOSTS = ["product.test"]
    settings.SECURE_SSL_REDIRECT = settings.SESSION_COOKIE_SECURE = True
    settings.CSRF_COOKIE_SECURE, settings.SECURE_HSTS_SECONDS = True, 31_536_000
    settings.TRUSTED_PROXIES = networks("127.0.0.1")
    async with running_kernel() as kernel:
        yield kernel


async def test_a_page_forbids_script_framing_and_storing_and_its_cookies_are_tight(installed):
    async with client_of(installed, **BY_PROXY) as browser:
        page = await browser.get("/sign-in/")
    assert page.status_code == 200, page.headers
    for part in STRICT:
        assert part in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "same-origin"
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["strict-transport-security"].startswith("max-age=31536000")
    assert re.fullmatch(r"web_[0-9a-f]{32}", page.headers["x-request-id"])
    cookies = page.headers.get_list("set-cookie")
    assert cookies
    for cookie in cookies:
        assert "; HttpOnly" in cookie
        assert "; Secure" in cookie
        assert "; SameSite=Lax" in cookie
    assert "server" not in page.headers


async def test_plain_http_is_led_to_https_whatever_a_stranger_claims(installed, settings):
    async with client_of(installed) as browser:
        plain = await browser.get("/sign-in/")
    assert (plain.status_code, plain.headers["location"]) == (301, "https://product.test/sign-in/")
    settings.TRUSTED_PROXIES = networks("10.9.9.9")
    async with client_of(installed, **BY_PROXY) as browser:
        assert (await browser.get("/sign-in/")).status_code == 301


async def test_an_audit_row_names_the_address_behind_the_proxy(installed):
    token = await look(installed, lambda: make_token(scopes=("usage:write", "usage:read")))
    api = Api(installed, None, client_of(installed, token, **BY_PROXY), token)
    assert (await api.admit()).status_code == 201
    cancelled = await api.client.post("/usage/v1/requests/op-1/cancel", json={"reason": "x"})
    assert cancelled.status_code == 200
    row = await look(installed, AuditRow.objects.order_by("at").last)
    assert '"request_address": "203.0.113.9"' in row.after_text
    assert row.request_id == cancelled.headers["x-request-id"]
    await api.client.aclose()
