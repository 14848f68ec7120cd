"""The console in a real browser: sent once, keyboard, theme, polls, drafts; no policy violation."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.urls import acts
from tests.support.browser import browser, watch
from tests.support.wait import wait_until

# What the script does in a browser depends on no database: once is enough.
pytestmark = [
    pytest.mark.browser,
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def allow_the_database_beside_playwright() -> Iterator[None]:
    """Playwright runs a loop in this thread, where Django would refuse the database."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield


@pytest.fixture
def page(chromium: Browser, live_server: Any, person: Any) -> Iterator[Page]:
    """A signed-in operator's page; ends with the check that nothing was refused or broken."""
    person("olga", "operator")
    context = chromium.new_context(
        base_url=live_server.url, viewport={"width": 1280, "height": 800}
    )
    page = context.new_page()
    faults = watch(page)
    sign_in(page)
    yield page
    context.close()
    assert not faults


def sign_in(page: Page) -> None:
    page.goto("/sign-in")
    page.get_by_label("Username").fill("olga")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("body")).to_contain_text("home of olga")


def send(page: Page, note: str, outcome: str = "done") -> None:
    page.get_by_label("Outcome").select_option(outcome)
    page.get_by_label("Note").fill(note)
    page.get_by_role("button", name="Send").click()


def test_every_component_renders_without_a_policy_violation(page: Page):
    page.goto("/guide")
    expect(page.get_by_role("heading", name="Style guide")).to_be_visible()
    for size in ((1440, 900), (360, 740)):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_the_watch_notices_what_the_policy_refuses(chromium: Browser, live_server: Any):
    page = chromium.new_page()
    faults = watch(page)
    page.goto(f"{live_server.url}/sign-in")
    assert not faults
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<p style=color:red>x</p>')")
    wait_until(lambda: page.wait_for_timeout(50) or faults)
    page.close()


def test_an_act_swaps_its_part_and_says_so(page: Page):
    page.goto("/act")
    send(page, "Looked up.")
    expect(page.locator("#toasts")).to_contain_text("Recorded.")
    expect(page.locator("#kind")).to_have_text("part")
    assert [note for _key, _version, note in acts] == ["Looked up."]


def test_a_double_click_is_sent_once(page: Page):
    page.goto("/act")
    sent: list[str] = []
    page.on("request", lambda request: request.method == "POST" and sent.append(request.url))
    page.get_by_label("Note").fill("twice?")
    page.evaluate(
        "() => { for (let n = 0; n < 3; n += 1) document.querySelector('#part button').click(); }"
    )
    expect(page.locator("#toasts")).to_contain_text("Recorded.")
    assert len(sent) == len(acts) == 1


def test_the_form_works_again_after_its_answer(page: Page):
    page.goto("/act")
    send(page, "first")
    expect(page.locator("#toasts")).to_contain_text("Recorded.")
    send(page, "second")
    wait_until(lambda: len(acts) == 2)
    assert len({key for key, _version, _note in acts}) == 2


def test_a_lost_race_is_focused_and_keeps_the_note(page: Page):
    page.goto("/act")
    send(page, "My long note", outcome="race")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("marek")
    expect(alert).to_be_focused()
    expect(page.get_by_label("Note")).to_have_value("My long note")


def test_a_lost_sign_in_keeps_the_typed_note(page: Page):
    page.goto("/act")
    page.context.clear_cookies(name="sessionid")
    send(page, "A note of many words")
    expect(page.get_by_text("You were signed out")).to_be_visible()
    page.get_by_label("Username").fill("olga")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_label("Note")).to_have_value("A note of many words")
    assert not acts


def test_a_stale_token_is_renewed_in_place(page: Page):
    page.goto("/act")
    token = "document.querySelector('#part [name=csrfmiddlewaretoken]')"
    page.evaluate(f"() => {{ {token}.value = 'x'.repeat(64); }}")
    send(page, "still here")
    expect(page.locator("#toasts")).to_contain_text("press the button again")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#toasts")).to_contain_text("Recorded.")
    assert [note for _key, _version, note in acts] == ["still here"]


def test_back_shows_the_whole_page(page: Page):
    page.goto("/act")
    send(page, "one")
    expect(page.locator("#kind")).to_have_text("part")
    page.goto("/guide")
    page.go_back()
    expect(page.locator("#kind")).to_have_text("page")
    expect(page.locator(".sidebar")).to_be_visible()


def test_the_theme_switch_needs_no_round_trip_and_is_rendered_next_time(page: Page):
    page.goto("/act")
    page.get_by_role("button", name="Dark theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    page.get_by_role("button", name="Light theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


def test_keys_move_open_and_go(page: Page):
    page.goto("/poll")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="a", exact=True)).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("tbody input").nth(1)).to_be_checked()
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    page.keyboard.type("gr")
    expect(page.get_by_role("combobox", name="Go to")).to_have_value("gr")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(page).to_have_url(re.compile("/requests$"))


def test_keys_can_be_switched_off_and_ignore_synthetic_events(page: Page):
    page.goto("/poll")
    page.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
    expect(page.get_by_role("combobox", name="Go to")).not_to_be_focused()
    page.context.add_cookies([{"name": "bz_keys", "value": "off", "url": page.url}])
    page.reload()
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Go to")).not_to_be_focused()


def test_a_poll_names_itself_and_rests_while_a_row_is_selected(page: Page):
    polls: list[dict[str, str]] = []
    page.on("request", lambda request: "poll=1" in request.url and polls.append(request.headers))
    page.goto("/poll")
    wait_until(lambda: page.wait_for_timeout(50) or polls)
    assert all(headers["hx-polling"] == "true" for headers in polls)
    page.locator("#box").check()
    page.wait_for_timeout(200)  # a poll that was on its way may still be counted
    before = len(polls)
    page.wait_for_timeout(2500)  # longer than two polls: that none comes is the fact
    assert len(polls) == before
    page.locator("#box").uncheck()
    page.locator("h1").click()
    wait_until(lambda: page.wait_for_timeout(50) or len(polls) > before)


def test_a_copy_button_copies_the_exact_text(page: Page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/guide")
    page.locator(".id .copy").first.click()
    expect(page.locator("#live")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("req_01a227b111498f5b")


def test_the_phone_menu_opens_without_script(chromium: Browser, live_server: Any, person: Any):
    person("olga", "operator")
    context = chromium.new_context(
        base_url=live_server.url, java_script_enabled=False, viewport={"width": 360, "height": 740}
    )
    page = context.new_page()
    sign_in(page)
    page.goto("/act")
    expect(page.get_by_role("link", name="Requests")).not_to_be_visible()
    page.get_by_role("button", name="Menu").click()
    expect(page.get_by_role("link", name="Requests")).to_be_visible()
    context.close()


def test_everything_works_without_script(chromium: Browser, live_server: Any, person: Any):
    person("olga", "operator")
    context = chromium.new_context(base_url=live_server.url, java_script_enabled=False)
    page = context.new_page()
    sign_in(page)
    page.goto("/act")
    send(page, "My long note", outcome="race")
    expect(page.get_by_role("alert")).to_contain_text("marek")
    expect(page.get_by_label("Note")).to_have_value("My long note")
    send(page, "plain")
    expect(page.locator("#flash")).to_contain_text("Recorded.")
    assert page.url.endswith("/act")
    page.get_by_role("button", name="Dark theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    context.close()
