"""An operator's journey: a group of dead letters, its plan, the confirmation, progress, report."""

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, Opener, Watch
from tests.browser.console import Console

COUNTS = "SELECT state, item_count, done_count, skipped_count, failed_count FROM bz_operations"
REPLAYS = "SELECT COUNT(*) FROM bz_notifications WHERE replay_of_id IN ({}) AND state = 'queued'"


def operation_of(page: Page) -> str:
    found = re.search(r"/operations/(op_[0-9a-z]+)/", page.url)
    assert found, page.url
    return found.group(1)


def counts(console: Console, operation_id: str) -> tuple[str, int, int, int, int]:
    (row,) = console.rows(f"{COUNTS} WHERE id = ?", operation_id)
    return row


def test_a_group_is_planned_confirmed_worked_off_and_reported(page: Page, console: Console):
    page.goto("/dead-letters/")
    row = page.get_by_role("row").filter(has_text="HTTP 500: upstream")
    row.get_by_role("link", name="Replay…").click()
    expect(page.get_by_text("24 open dead letters")).to_be_visible()
    page.get_by_label("Reason").fill("The shop is back.")
    page.get_by_label("At most so many a second").fill("1000")
    page.get_by_role("button", name="Freeze the set").click()
    expect(page.get_by_text("Nothing was done yet: this is the plan")).to_be_visible()
    operation_id = operation_of(page)
    assert counts(console, operation_id) == ("planned", 24, 0, 0, 0)
    page.get_by_role("button", name="Start: 24 items").dblclick()
    expect(page.get_by_text("24 / 24")).to_be_visible(timeout=20_000)
    expect(page.locator("#state .card-head .badge")).to_have_text("Done", timeout=20_000)
    state, total, done, skipped, failed = counts(console, operation_id)
    assert (state, total, failed) == ("done", 24, 0) and done + skipped == total
    with page.expect_download() as download:
        page.get_by_role("link", name="The whole report (CSV)").click()
    lines = Path(download.value.path()).read_text("utf-8-sig").splitlines()
    assert len(lines) == 25 and lines[0] == "number,object_id,result,outcome,at"
    page.goto("/dead-letters/")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="HTTP 500: upstream")).to_have_count(0)


def test_a_phone_without_script_replays_one_and_sees_its_notification(
    open_page: Opener, console: Console
):
    letter = console.made["post_second"]
    page = open_page(PHONE, javascript=False)
    page.goto(f"/dead-letters/{letter}/")
    expect(page.get_by_text("The dead letter before")).to_be_visible()
    page.get_by_role("link", name="Replay…").click()
    page.get_by_label("Reason").fill("Their endpoint is back.")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.get_by_role("button", name="Replay it once").click()
    expect(page.get_by_text("Queued once more.")).to_be_visible()
    page.locator(f'a[href="/notifications/ntf_{letter}/"]').first.click()
    expect(page.get_by_text("Attempts").first).to_be_visible()
    assert console.rows(REPLAYS.format("?"), letter) == [(1,)]


def test_a_plan_for_everything_is_refused_in_words(page: Page, watch: Watch):
    watch.allow(422)
    page.goto("/dead-letters/replay/")
    expect(page.get_by_role("alert")).to_contain_text("no filter is set")
    expect(page.get_by_role("button", name="Freeze the set")).to_have_count(0)
