"""Journeys by keyboard alone, and without script: a decision and a replay (L; cases 76, 88)."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Opener, Watch, sign_in
from tests.browser.console import Console
from tests.support.wait import wait_until

TABS_MAX = 80
STATE = "SELECT state, decided_by_id, reason FROM bz_approvals WHERE id = ?"
REPLAYS = "SELECT COUNT(*) FROM bz_notifications WHERE replay_of_id = ?"


def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until the target has the focus and can be seen."""
    expect(target).to_be_visible()
    for _ in range(TABS_MAX):
        if target.evaluate("(one) => one === document.activeElement"):
            break
        page.keyboard.press("Tab")
    expect(target).to_be_focused()
    expect(target).to_be_in_viewport()


def row_by_keys(page: Page, text: str) -> None:
    """Move down by `j` to the row with this text and open it by Enter."""
    link = page.locator("[data-rows] .row-link", has_text=text)
    expect(link).to_be_visible()
    for _ in range(TABS_MAX):
        page.keyboard.press("j")
        if link.evaluate("(one) => one === document.activeElement"):
            break
    expect(link).to_be_focused()
    page.keyboard.press("Enter")


def go(page: Page, key: str, path: str) -> None:
    page.keyboard.press("g")
    page.keyboard.press(key)
    expect(page).to_have_url(re.compile(rf"{path}$"))


def test_a_call_is_approved_by_keyboard_alone(page: Page, console: Console):
    approval_id = console.made["by_keys"]
    page.goto("/")
    go(page, "p", "/approvals/")
    row_by_keys(page, "Refund 71 EUR")
    tab_to(page, page.get_by_role("link", name="Approve…"))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_label("Reason"))
    page.keyboard.type("Typed, with j and g in it?")
    tab_to(page, page.get_by_role("button", name="Approve"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Approved by admin")).to_be_visible()
    (row,) = console.rows(STATE, approval_id)
    assert row == ("approved", "admin", "Typed, with j and g in it?")


def test_a_dead_letter_is_replayed_by_keyboard_alone(page: Page, console: Console):
    letter = console.made["post_hostile"]
    page.goto("/")
    go(page, "d", "/dead-letters/")
    row_by_keys(page, "gnp.exe")
    expect(page).to_have_url(re.compile("/dead-letters/list/"))
    row_by_keys(page, "gnp.exe")
    tab_to(page, page.get_by_role("link", name="Replay…"))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_label("Reason"))
    page.keyboard.type("Their filter is fixed.")
    tab_to(page, page.get_by_role("button", name="Replay it once"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("Queued once more.")).to_be_visible()
    wait_until(lambda: console.rows(REPLAYS, letter) == [(1,)])


def test_from_the_sign_in_to_a_decision_without_script(open_page: Opener, console: Console):
    approval_id = console.made["by_form"]
    page = open_page(signed_in=False, javascript=False)
    page.goto("/approvals/")
    sign_in(page)
    page.get_by_role("link", name="Refund 72 EUR").click()
    page.get_by_role("link", name="Deny…").click()
    page.get_by_label("Reason").fill("The order does not exist.")
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("heading", name="Denied by admin")).to_be_visible()
    assert console.rows(STATE, approval_id)[0][:2] == ("denied", "admin")


def test_a_view_is_saved_used_and_deleted_and_keys_are_switched_off(page: Page):
    page.goto("/requests/?state=unknown")
    page.get_by_role("link", name="Save this view…").click()
    page.get_by_label("Name").fill("Lost ones")
    page.get_by_role("button", name="Save the view").click()
    views = page.get_by_role("navigation", name="Saved views")
    expect(views.get_by_role("link", name="Lost ones")).to_have_attribute("aria-current", "page")
    views.get_by_role("link", name="All").click()
    page.get_by_label("Result").select_option("unknown")  # the part knows its views as well
    expect(views.get_by_role("link", name="Lost ones")).to_have_attribute("aria-current", "page")
    views.get_by_role("link", name="Edit").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("View deleted.")).to_be_visible()
    page.get_by_label("Single-key shortcuts").select_option("off")
    page.get_by_role("button", name="Save").click()
    page.keyboard.press("?")
    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page.locator("#shortcuts")).to_be_hidden()
    expect(page).to_have_url(re.compile("/preferences/$"))


def test_shift_ticks_a_range_and_a_poll_keeps_it(page: Page):
    page.goto("/approvals/")
    boxes = page.locator("tbody input[type=checkbox]")
    boxes.nth(0).check()
    boxes.nth(2).click(modifiers=["Shift"])
    ticked = page.locator("tbody input:checked")
    expect(ticked).to_have_count(3)
    page.evaluate("htmx.trigger(document.querySelector('#news'), 'poll')")
    expect(page.locator("#news[aria-busy]")).to_have_count(0)
    expect(ticked).to_have_count(3)


def test_a_failed_poll_keeps_the_page_and_marks_it_stale(page: Page, watch: Watch):
    page.goto("/requests/")
    rows = page.locator("tbody tr")
    before = rows.count()
    page.route("**/*poll=1*", lambda route: route.fulfill(status=418, body="no answer"))
    page.evaluate("htmx.trigger(document.querySelector('#news'), 'poll')")
    expect(page.locator("#news")).to_have_class(re.compile("is-stale"))
    assert rows.count() == before
    watch[:] = [one for one in watch if "418" not in one]  # provoked on purpose
