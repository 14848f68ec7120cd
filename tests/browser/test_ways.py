"""Other ways through the console: keyboard, phone, no script, an ended session, two themes."""

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, Opener, Watch, sign_in
from tests.browser.console import Console
from tests.browser.test_journeys import NOTE, request_page, settle_by_evidence


def session_key(page: Page) -> str:
    (key,) = [one["value"] for one in page.context.cookies() if one["name"] == "sessionid"]
    return key


def test_a_session_that_idled_asks_to_sign_in_and_keeps_the_note(
    open_page: Opener, watch: Watch, console: Console
):
    watch.allow(401)
    page = open_page(signed_in=False)
    sign_in(page)
    page.goto(request_page(console.made["lost_5"]))
    settle_by_evidence(page, note="A note of many words.")
    console.let_session_idle(session_key(page))
    page.get_by_role("button", name="Record this outcome").click()
    expect(page.get_by_text("You were signed out")).to_be_visible()
    assert console.acts(console.made["lost_5"]) == []
    sign_in(page)
    expect(page).to_have_url(re.compile(re.escape(request_page(console.made["lost_5"]))))
    expect(page.get_by_label("How do you know?")).to_have_value("A note of many words.")


def test_without_script_an_idle_session_shows_the_note_again(
    open_page: Opener, watch: Watch, console: Console
):
    watch.allow(401)
    page = open_page(signed_in=False, javascript=False)
    sign_in(page)
    page.goto(request_page(console.made["lost_5"]))
    settle_by_evidence(page, note="A note of many words.")
    console.let_session_idle(session_key(page))
    page.get_by_role("button", name="Record this outcome").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("nothing was done")
    expect(page.get_by_role("textbox", name="note")).to_have_value("A note of many words.")
    page.get_by_role("link", name="Sign in").click()
    sign_in(page)
    expect(page.get_by_role("heading", name="The outcome is not known")).to_be_visible()


def test_the_keyboard_reaches_a_request_and_every_screen(page: Page):
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(page).to_have_url(re.compile("/requests/$"))
    links = page.locator("tbody .row-link")
    page.keyboard.press("j")
    expect(links.nth(0)).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(links.nth(1)).to_be_focused()
    name = links.nth(1).inner_text()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(name[:8])
    page.keyboard.press("/")
    page.keyboard.type("acme-prod")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/accounts/acme-prod/$"))
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page.get_by_role("heading", name="What needs you")).to_be_visible()


def test_pages_are_turned_by_keys_and_end(page: Page):
    page.goto("/requests/")
    first = page.locator("tbody .row-link").first.inner_text()
    page.keyboard.press("]")
    expect(page.get_by_role("link", name="Newer")).to_be_visible()
    assert page.locator("tbody .row-link").first.inner_text() != first
    page.keyboard.press("[")
    expect(page.locator("tbody .row-link").first).to_have_text(first)


def test_everything_needed_works_without_script(open_page: Opener, console: Console):
    request_id = console.made["lost_6"]
    page = open_page(signed_in=False, javascript=False)
    page.goto("/")
    sign_in(page)
    page.get_by_role("link", name="Requests", exact=True).click()
    page.get_by_label("Result").select_option("unknown")
    page.get_by_role("button", name="Apply").click()
    page.get_by_role("link", name="lost-6").click()
    settle_by_evidence(page)
    page.get_by_role("button", name="Record this outcome").click()
    expect(page.locator("#flash")).to_contain_text("Recorded.")
    assert console.acts(request_id) == [("request.resolve_unknown", "admin", NOTE)]
    page.goto("/reconciliation/")
    page.get_by_role("button", name="Run a pass now").click()
    expect(page.locator("#flash")).to_contain_text("The pass has run.")


def test_an_unknown_is_resolved_on_a_phone(open_page: Opener, console: Console):
    page = open_page(PHONE, has_touch=True, is_mobile=True)
    page.goto("/")
    page.get_by_role("button", name="Menu").tap()
    page.get_by_role("link", name="Requests", exact=True).tap()
    expect(page.get_by_role("heading", level=1)).to_have_text("Requests")
    page.goto("/requests/?state=unknown")
    page.get_by_role("link", name="lost-7").tap()
    page.get_by_label("It was not executed: nothing is owed").check()
    page.get_by_label("How do you know?").fill(NOTE)
    button = page.get_by_role("button", name="Record this outcome")
    box = button.bounding_box()
    assert box is not None and box["height"] >= 40 and box["x"] + box["width"] <= 360
    button.tap()
    expect(page.locator("#flash")).to_contain_text("Recorded.")
    assert console.states(console.made["lost_7"]) == ("failed", "not_charged")


def test_the_raw_rows_keep_to_the_policy_as_well(page: Page):
    for path in ("/admin/", "/admin/kernel/request/", "/admin/kernel/auditrow/"):
        page.goto(path)
        expect(page.get_by_role("link", name="Back to the console")).to_be_visible()
    page.locator("#result_list a").first.click()
    expect(page.locator("#content")).to_be_visible()


def test_the_chosen_theme_is_in_the_first_bytes_so_nothing_flashes(open_page: Opener):
    page = open_page(color_scheme="light")
    page.goto("/requests/")
    page.get_by_role("button", name="Dark theme").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    answer = page.reload()
    assert answer is not None and 'data-theme="dark"' in answer.text()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    without = open_page(javascript=False, color_scheme="light", signed_in=True)
    without.context.add_cookies(page.context.cookies())
    without.goto("/requests/")
    expect(without.locator("html")).to_have_attribute("data-theme", "dark")


def test_a_hidden_tab_does_not_poll(page: Page):
    page.add_init_script(
        "Object.defineProperty(document, 'hidden', { get: () => window.isHidden === true });"
    )
    polls: list[str] = []
    page.on("request", lambda request: "poll=1" in request.url and polls.append(request.url))
    page.goto("/reconciliation/")
    with page.expect_request(re.compile("poll=1")):
        page.evaluate("document.querySelector('[data-poll]').dataset.poll = '1'")
        page.evaluate("htmx.trigger(document.querySelector('[data-poll]'), 'poll')")
    expect(page.locator("[data-poll][aria-busy]")).to_have_count(0)
    page.evaluate("window.isHidden = true")
    page.evaluate("document.querySelector('[data-poll]').dataset.poll = '1'")
    before = len(polls)
    page.wait_for_timeout(2500)  # longer than two polls: that none comes is the fact
    assert len(polls) == before
