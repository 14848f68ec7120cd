"""An operator's journeys through the console, in a real browser against the real product."""

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Opener, Watch, sign_in
from tests.browser.console import Console
from tests.support.wait import wait_until

PASSES_ASKED = "SELECT COUNT(*) FROM bz_audit WHERE action = 'pass.run'"
NOTE = "Found in the provider's log at 02:14."


def request_page(request_id: str) -> str:
    return f"/requests/{request_id}/"


def settle_by_evidence(page: Page, note: str = NOTE) -> None:
    page.get_by_label("It was executed: charge this metering").check()
    page.get_by_label("Input tokens").fill("1204")
    page.get_by_label("Output tokens").fill("310")
    page.get_by_label("How do you know?").fill(note)


def test_a_wrong_password_is_told_and_the_right_one_leads_home(open_page: Opener, watch: Watch):
    watch.allow(422)
    page = open_page(signed_in=False)
    page.goto("/requests/?state=unknown")
    expect(page).to_have_url(re.compile(r"/sign-in/\?next="))
    sign_in(page, "wrong")
    expect(page.get_by_role("alert")).to_contain_text("Name and password do not match")
    sign_in(page)
    expect(page).to_have_url(re.compile(r"/requests/\?state=unknown$"))
    page.get_by_role("link", name="Home", exact=True).click()
    expect(page.get_by_role("heading", name="What needs you")).to_be_visible()


def test_a_request_is_found_by_the_go_to_box_and_explains_itself(page: Page, console: Console):
    assert console.ask("hello-1").status_code == 200
    wait_until(
        lambda: console.rows(
            "SELECT 1 FROM bz_usage_requests WHERE operation_id = 'hello-1'"
            " AND billing_state = 'settled'"
        )
    )
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("hello-1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("hello-1")
    timeline = page.locator(".timeline")
    for step in ("Admitted", "Dispatched", "Complete", "Settled"):
        expect(timeline.get_by_text(step, exact=True)).to_be_visible()
    expect(page.locator(".sum")).to_contain_text("Billed, rounded once")
    expect(page.locator(".body-text").last).to_contain_text("This is the demo provider")


def test_an_unknown_is_resolved_with_evidence_and_settles_once(page: Page, console: Console):
    request_id = console.made["lost_0"]
    page.goto("/")
    page.get_by_role("link", name=re.compile("requests with an unknown outcome")).click()
    expect(page).to_have_url(re.compile(r"\?state=unknown$"))
    page.get_by_role("link", name="lost-0").click()
    expect(page.get_by_role("heading", name="The outcome is not known")).to_be_visible()
    settle_by_evidence(page)
    page.get_by_role("button", name="Record this outcome").click()
    expect(page.locator("#flash")).to_contain_text("Recorded. The request is settled now.")
    expect(page).to_have_url(re.compile(re.escape(request_page(request_id)) + "$"))
    expect(page.get_by_role("heading", name="What people did")).to_be_visible()
    assert console.states(request_id) == ("failed", "settled")
    assert console.acts(request_id) == [("request.resolve_unknown", "admin", NOTE)]
    ledger = "SELECT COUNT(*) FROM bz_usage_ledger WHERE request_id = ?"
    assert console.rows(ledger, request_id) == [(1,)]


def test_a_double_click_submits_once(page: Page, console: Console):
    request_id = console.made["lost_1"]
    page.goto(request_page(request_id))
    posts: list[str] = []
    page.on("request", lambda request: request.method == "POST" and posts.append(request.url))
    settle_by_evidence(page)
    page.get_by_role("button", name="Record this outcome").dblclick()
    expect(page.locator("#flash")).to_contain_text("Recorded.")
    assert len(posts) == 1
    assert len(console.acts(request_id)) == 1


def test_a_double_click_without_script_acts_once(open_page: Opener, console: Console):
    request_id = console.made["lost_2"]
    page = open_page(javascript=False)
    page.goto(request_page(request_id))
    page.get_by_label("It was not executed: nothing is owed").check()
    page.get_by_label("How do you know?").fill(NOTE)
    page.get_by_role("button", name="Record this outcome").dblclick()
    expect(page.locator("#flash")).to_contain_text(re.compile("Recorded|carried out once"))
    assert len(console.acts(request_id)) == 1
    assert console.states(request_id) == ("failed", "not_charged")


def test_of_two_tabs_the_second_is_told_and_keeps_its_note(
    page: Page, watch: Watch, console: Console
):
    watch.allow(409)
    request_id = console.made["lost_3"]
    other = page.context.new_page()
    for tab in (page, other):
        tab.goto(request_page(request_id))
        settle_by_evidence(tab, note=f"{NOTE} Tab {1 if tab is page else 2}.")
    page.get_by_role("button", name="Record this outcome").click()
    expect(page.locator("#flash")).to_contain_text("Recorded.")
    other.get_by_role("button", name="Record this outcome").click()
    alert = other.get_by_role("alert")
    expect(alert).to_be_focused()
    expect(alert).to_contain_text("Nothing was done")
    expect(alert).to_contain_text("Resolved the unknown outcome")
    expect(other.locator("#resolve textarea")).to_have_value(f"{NOTE} Tab 2.")
    assert len(console.acts(request_id)) == 1


def test_back_after_an_act_shows_the_whole_page_as_it_is_now(page: Page, console: Console):
    request_id = console.made["lost_4"]
    page.goto("/requests/?state=unknown")
    page.get_by_role("link", name="lost-4").click()
    settle_by_evidence(page)
    page.get_by_role("button", name="Record this outcome").click()
    expect(page.locator("#flash")).to_contain_text("Recorded.")
    page.go_back()
    expect(page.locator(".sidebar")).to_be_visible()
    expect(page.get_by_role("heading", name="The outcome is not known")).to_have_count(0)
    while "state=unknown" not in page.url:
        page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Requests")
    expect(page.get_by_role("link", name="lost-4")).to_have_count(0)
    assert len(console.acts(request_id)) == 1


def test_filters_live_in_the_address_and_back_restores_them(page: Page):
    page.goto("/requests/")
    page.get_by_label("Result").select_option("unknown")
    expect(page.locator(".chips")).to_contain_text("Unknown")
    expect(page).to_have_url(re.compile("state=unknown"))
    expect(page.locator("tbody .badge", has_text="Complete")).to_have_count(0)
    page.get_by_label("Account").fill("research")
    page.get_by_label("Account").press("Enter")
    expect(page.get_by_text("No request matches these filters")).to_be_visible()
    page.go_back()
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page.locator(".sidebar")).to_be_visible()
    expect(page.get_by_label("Result")).to_have_value("unknown")
    page.reload()
    expect(page.locator(".chips")).to_contain_text("Unknown")


def test_a_bad_filter_is_an_error_in_place_and_never_everything(page: Page, watch: Watch):
    watch.allow(400)
    page.goto("/requests/")
    page.get_by_label("Account").fill("no such id!")
    page.get_by_label("Account").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("This filter does not work")
    expect(page.locator("tbody tr")).to_have_count(0)


def test_a_list_says_what_is_new_and_moves_no_row(page: Page, console: Console):
    page.goto("/requests/")
    rows = page.locator("tbody tr")
    first = rows.first.inner_text()
    console.ask("fresh-1")
    page.evaluate("htmx.trigger(document.querySelector('#news'), 'poll')")
    news = page.locator("#news")
    expect(news).to_contain_text(re.compile(r"\d+ requests? changed"))
    assert first.split()[0] in rows.first.inner_text()
    news.get_by_role("link", name="Show").click()
    expect(rows.first).to_contain_text("fresh-1")


def test_an_admitted_request_is_dispatched_and_another_cancelled(page: Page, console: Console):
    sent, dropped = console.admit("batch-1"), console.admit("batch-2")
    page.goto(request_page(sent))
    page.get_by_role("link", name="Dispatch…").click()
    expect(page.get_by_text("This cannot be taken back.")).to_be_visible()
    page.get_by_label("Note").fill("The customer waits.")
    page.get_by_role("button", name="Dispatch now").click()
    expect(page.locator("#flash")).to_contain_text("Dispatched.")
    wait_until(lambda: console.states(sent) == ("complete", "settled"))
    page.goto(request_page(dropped))
    page.get_by_role("link", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the request").click()
    expect(page.locator("#flash")).to_contain_text("Cancelled.")
    assert console.states(dropped) == ("cancelled", "not_charged")
    assert [act[0] for act in console.acts(sent)] == ["request.dispatch"]
    assert [act[0] for act in console.acts(dropped)] == ["request.cancel"]


def test_a_token_is_shown_once_works_and_ends(page: Page, console: Console):
    page.goto("/tokens/new/")
    page.get_by_role("textbox", name="Account").fill("demo")
    page.get_by_role("textbox", name="Name").fill("weekly export")
    page.get_by_role("button", name="Issue the token").click()
    expect(page.get_by_role("heading", name="Copy it now")).to_be_visible()
    secret = page.locator(".secret bdi").inner_text()
    assert secret.startswith("bz_") and secret not in console.output
    assert console.ask("token-1", token=secret).status_code == 200
    page.get_by_role("link", name="I have copied it").click()
    expect(page.locator("tbody tr", has_text="weekly export")).to_be_visible()
    assert secret not in page.content()
    page.go_back()
    assert secret not in page.content()
    page.goto("/tokens/")
    page.locator("tr", has_text="weekly export").get_by_role("link", name="Revoke…").click()
    page.get_by_role("button", name="Revoke the token").click()
    expect(page.locator("#flash")).to_contain_text("Token revoked.")
    wait_until(lambda: console.ask("token-2", token=secret).status_code == 401)


def test_a_pass_is_run_now_and_its_progress_is_followed_while_it_runs(page: Page, console: Console):
    page.goto("/reconciliation/")
    ((before,),) = console.rows(PASSES_ASKED)
    for count in (1, 2):
        page.get_by_role("button", name="Run a pass now").click()
        expect(page.locator("#flash")).to_contain_text("The pass has run.")
        assert console.rows(PASSES_ASKED) == [(before + count,)]
        page.reload()
    running = "UPDATE bz_pass_status SET running = ?, updated_at = ? WHERE name = 'settlement'"
    console.write(running, 1, now_text(console))
    page.reload()
    expect(page.get_by_role("progressbar")).to_be_visible()
    console.write(running, 0, now_text(console))
    expect(page.get_by_role("progressbar")).to_have_count(0)  # its own poll, after two seconds


def now_text(console: Console) -> str:
    ((text,),) = console.rows("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')")
    return str(text)
