"""Second factors in a browser: an app without a script, a passkey, a fresh proof under htmx."""

import re
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import DESK, Watch
from tests.browser.console import PASSWORD, Console
from tests.support.second_factors import code

AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


def local(console: Console) -> str:
    """The console under a name: browsers make no passkeys for an address."""
    return console.address.replace("127.0.0.1", "localhost")


def open_at(chromium: Browser, address: str, watch: Watch, **options: Any) -> Page:
    page = chromium.new_context(base_url=address, viewport=DESK, **options).new_page()
    watch.origin = address
    watch.follow(page)
    return page


def sign_in(page: Page, name: str, password: str) -> None:
    page.goto("/sign-in/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def give_passkeys(page: Page) -> None:
    devices = page.context.new_cdp_session(page)
    devices.send("WebAuthn.enable")
    devices.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})


def test_a_passkey_is_made_signs_in_and_proves_who_it_is(
    chromium: Browser, console: Console, watch: Watch
):
    watch.allow(403)
    password = console.add_person("paula", "admin")
    page = open_at(chromium, local(console), watch)
    give_passkeys(page)
    sign_in(page, "paula", password)
    page.goto("/you/passkey/")
    page.get_by_label("Name").fill("my laptop")
    page.get_by_role("button", name="Make a passkey").click()
    expect(page.get_by_role("heading", name="Keep these codes now")).to_be_visible()
    page.get_by_role("link", name="I have kept them").click()
    expect(page.get_by_text("my laptop")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, "paula", password)
    expect(page.get_by_role("heading", name="One more step")).to_be_visible()
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("navigation", name="Screens")).to_be_visible()
    console.let_proof_age("paula")
    page.goto("/people/new/")
    page.get_by_label("Name").fill("somebody")
    page.get_by_role("button", name="Add the person").click()
    expect(page.get_by_text("Nothing was done yet")).to_be_visible()
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_text("Copy it now")).to_be_visible()
    page.context.close()


def test_without_script_an_app_is_set_up_signs_in_and_a_password_proves_who_it_is(
    chromium: Browser, console: Console, watch: Watch
):
    watch.allow(403, 422)
    password = console.add_person("nora", "admin")
    page = open_at(chromium, console.address, watch, java_script_enabled=False)
    sign_in(page, "nora", password)
    page.get_by_role("link", name=re.compile("nora")).click()
    page.get_by_role("link", name="Set up an authenticator app").click()
    secret = re.search(r"\b[A-Z2-7]{32}\b", page.locator("#form").inner_text())
    assert secret
    page.get_by_label("Code that the app shows").fill(code(secret[0]))
    page.get_by_role("button", name="Set it up").click()
    recovery = page.locator(".codes li").first.inner_text()
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, "nora", password)
    page.get_by_label("Code", exact=True).fill(recovery)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Screens")).to_be_visible()
    console.let_proof_age("nora")
    page.goto("/people/new/")
    page.get_by_label("Name").fill("someone-else")
    page.get_by_role("button", name="Add the person").click()
    page.get_by_label("Your password").fill(password)
    page.get_by_role("button", name="Confirm and go on").click()
    expect(page.get_by_text("Copy it now")).to_be_visible()
    assert PASSWORD not in console.output and password not in console.output
    page.context.close()
