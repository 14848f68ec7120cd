"""An approver's journey: one decision, seen by everybody, at a desk and on a phone."""

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, Opener, Watch
from tests.browser.console import Console

DECIDED = "SELECT COUNT(*) FROM bz_audit WHERE action = 'approval.decided' AND subject = ?"
STATE = "SELECT state, decided_by_id, reason FROM bz_approvals WHERE id = ?"


def approval_page(approval_id: str) -> str:
    return f"/approvals/{approval_id}/"


def decided(console: Console, approval_id: str) -> int:
    ((count,),) = console.rows(DECIDED, f"approval:{approval_id}")
    return int(count)


def test_a_double_click_decides_once_and_the_page_says_what_follows(page: Page, console: Console):
    approval_id = console.made["ask_small"]
    page.goto("/approvals/")
    page.get_by_role("link", name="Refund 39.5 EUR").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Refund 39.5 EUR")
    page.get_by_role("link", name="Approve…").click()
    expect(page.get_by_text("shop.example.com")).to_be_visible()
    page.get_by_label("Reason").fill("Checked in the shop.")
    page.get_by_role("button", name="Approve").dblclick()
    expect(page).to_have_url(re.compile(rf"{approval_page(approval_id)}$"))
    expect(page.get_by_role("status").filter(has_text="The job goes on")).to_be_visible()
    expect(page.get_by_role("heading", name="Approved by admin")).to_be_visible()
    assert decided(console, approval_id) == 1
    assert console.rows(STATE, approval_id) == [("approved", "admin", "Checked in the shop.")]


def test_the_second_tab_sees_who_decided_and_keeps_the_note(
    open_page: Opener, console: Console, watch: Watch
):
    watch.allow(409)
    approval_id = console.made["ask_changed"]
    first, second, third = open_page(), open_page(), open_page()
    second.goto(f"{approval_page(approval_id)}deny/")
    second.get_by_label("Reason").fill("Nobody asked me.")
    third.goto(approval_page(approval_id))
    first.goto(f"{approval_page(approval_id)}approve/")
    first.get_by_role("button", name="Approve").click()
    expect(first.get_by_role("heading", name="Approved by admin")).to_be_visible()
    # the tab that only looks turns by itself; the one that types is told and keeps its text
    expect(third.get_by_role("heading", name="Approved by admin")).to_be_visible(timeout=6_000)
    expect(third.locator("#question-now")).to_have_text("Approved")
    expect(third.locator("#job-now")).not_to_contain_text("Waiting")
    expect(second.get_by_text("Meanwhile:")).to_be_visible(timeout=6_000)
    expect(second.get_by_label("Reason")).to_have_value("Nobody asked me.")
    second.get_by_role("button", name="Deny").click()
    expect(second.get_by_role("alert")).to_contain_text("Somebody was first: admin, approved")
    expect(second.get_by_label("What you typed")).to_have_value("Nobody asked me.")
    expect(second.get_by_role("heading", level=1)).to_have_text("Nothing to decide any more")
    assert decided(console, approval_id) == 1


def test_a_phone_without_script_denies_with_a_reason(
    open_page: Opener, console: Console, watch: Watch
):
    watch.allow(422)
    approval_id = console.made["ask_large"]
    page = open_page(PHONE, javascript=False)
    page.goto("/approvals/")
    page.get_by_role("link", name="Refund 1250 EUR").click()
    page.get_by_role("link", name="Deny…").click()
    button = page.get_by_role("button", name="Deny")
    box = button.bounding_box()
    assert box is not None and box["height"] >= 44 and box["x"] + box["width"] <= PHONE["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.get_by_label("Reason").fill("The parcel was delivered.")
    button.click()
    expect(page.get_by_role("heading", name="Denied by admin")).to_be_visible()
    expect(page.get_by_text("Never sent")).to_be_visible()
    assert console.rows(STATE, approval_id)[0][0] == "denied"


def test_keys_tick_rows_and_a_page_lists_them_before_anything_happens(page: Page, console: Console):
    page.goto("/approvals/")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    ticked = page.locator("tbody input:checked")
    expect(ticked).to_have_count(2)
    ids = [ticked.nth(number).get_attribute("value") or "" for number in range(2)]
    page.get_by_role("button", name="Approve…").click()
    expect(page.get_by_role("heading", name="Approve 2 calls?")).to_be_visible()
    assert [decided(console, one) for one in ids] == [0, 0]
    page.get_by_label("Reason").fill("Both are fine.")
    page.get_by_role("button", name="Approve 2 calls").click()
    expect(page.get_by_role("heading", name="What happened to each")).to_be_visible()
    expect(page.get_by_text("2 of 2 done").first).to_be_visible()
    assert [decided(console, one) for one in ids] == [1, 1]
