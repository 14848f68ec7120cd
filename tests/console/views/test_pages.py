"""Every page on a busy day with hostile texts: nothing runs, nothing hides, no secret shows."""

import logging
import re
from pathlib import Path

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from console.views import requests as requests_screen
from console.views.access import LISTED_MAX
from kernel import access, usage
from kernel.access import ensure_roles
from kernel.models import AuditRow
from tests.console.views.conftest import rendered, send
from tests.support import console_data, lives
from tests.support.pages import doubled_ids, form_to, policy_faults

HIDDEN = re.compile("[\u202a-\u202e\u2066-\u2069\u200b\u2060]")
QUERIES_MAX = 9
ROOT = Path(__file__).resolve().parents[3]


def looked_at(made):
    """Addresses of pages that only show."""
    names = ("home", "requests", "accounts", "reconciliation", "services", "prices", "tokens")
    found = [reverse(name) for name in (*names, "people", "audit", "health")]
    found += [reverse("request", args=[request_id]) for request_id in made.values()]
    found += [
        reverse("account", args=[one]) for one in ("acme-prod", "research", hostile_account())
    ]
    found += [reverse("service", args=[one]) for one in ("gpt-main", "local-llama", "hostile")]
    found += [
        f"{reverse('requests')}?state=unknown",
        f"{reverse('requests')}?billing=pending&reason=no_usage",
        f"{reverse('audit')}?subject=account:acme-prod",
        f"{reverse('go-to')}?q=nothing",
    ]
    return found


def forms(made):
    """Addresses of pages with a form."""
    found = [reverse(f"{what}-new") for what in ("account", "service", "price", "token", "person")]
    found += [reverse("account-change", args=[hostile_account()])]
    found += [reverse("service-change", args=["hostile"])]
    found += [
        reverse(name, args=[made[kind]])
        for name in ("request-cancel", "request-dispatch")
        for kind in ("admitted", "unknown", "hostile_3")
    ]
    token = access.list_tokens()[0]
    return [*found, reverse("token-revoke", args=[token.id])]


def hostile_account():
    return console_data.LONG[:128]


@pytest.fixture
def made(db):
    ensure_roles()
    made = console_data.busy_day(settled_rows=4)
    return made | console_data.hostile()


def test_no_page_holds_what_the_policy_refuses_or_an_id_twice(made, admin):
    bad = {}
    errors = ["/nowhere/", "/requests/?state=nope", "/requests/?account=%3Cb%3E"]
    for address in [*looked_at(made), *forms(made), *errors]:
        page = admin.get(address).text
        faults = policy_faults(page) + doubled_ids(page)
        if faults:
            bad[address] = faults
    assert not bad


def test_hostile_text_is_never_markup_and_what_hides_is_named(made, admin):
    bad = {}
    named = 0
    for address in looked_at(made):
        page = admin.get(address).text
        found = [repr(one) for one in HIDDEN.findall(page)]
        found += [word for word in ("<script>alert", "<b>bold") if word in page]
        named += "⟦U+202E⟧" in page
        if found:
            bad[address] = found
    assert not bad
    assert named > 3


def test_a_long_text_is_shown_whole_or_says_how_much_there_is(made, admin):
    page = admin.get(reverse("request", args=[made["hostile_0"]])).text
    assert "The first 8,192 of" in page
    assert console_data.UNBROKEN in admin.get(reverse("request", args=[made["hostile_5"]])).text


def test_pages_have_one_heading_and_say_where_they_are(made, admin):
    for address in looked_at(made):
        page = admin.get(address).text
        assert page.count("<h1") == 1
        assert 'aria-current="page"' in page or reverse("go-to") in address


@pytest.mark.parametrize("name", ["token-new", "person-new"])
def test_a_secret_is_on_one_answer_and_nowhere_else(made, admin, caplog, name):
    caplog.set_level(logging.DEBUG)
    values = {
        "token-new": {"account_id": "acme-prod", "name": "ci", "scopes": "usage:read"},
        "person-new": {"name": "ida", "role": "viewer"},
    }[name]
    form = rendered(admin, name)
    answer = send(admin, form, **values)
    assert answer.status_code == 200
    (secret,) = re.findall(r'class="secret">.*?data-copy="([^"]+)"', answer.text, re.DOTALL)
    assert len(secret) >= 20
    assert answer["Cache-Control"] == "no-store"
    again = send(admin, form, **values)
    assert again.status_code == 303 and secret not in again.text
    for address in [*looked_at(made), *forms(made)]:
        assert secret not in admin.get(address).text, address
    assert secret not in caplog.text
    assert secret not in repr(list(AuditRow.objects.values()))


def test_a_secret_comes_as_a_part_of_the_page_with_htmx(made, admin):
    form = rendered(admin, "token-new")
    values = {"account_id": "acme-prod", "name": "ci", "scopes": "usage:read"}
    answer = admin.post(form.action, {**form.fields, **values}, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    assert "<html" not in answer.text and "Copy it now" in answer.text


def test_no_page_shows_a_providers_key(made, admin, monkeypatch):
    monkeypatch.setenv("OPENAI_KEY", "sk-never-on-a-page")
    for address in [*looked_at(made), *forms(made)]:
        assert "sk-never-on-a-page" not in admin.get(address).text


LISTS = {
    "requests": ("?state=unknown", "No request yet", "No request matches these filters"),
    "accounts": ("?state=over_cap", "No account yet", "No account is in this state"),
    "tokens": ("?account=nobody", "No token yet", "No token of this account"),
    "audit": ("?subject=account:nobody", "No act yet", "No act matches these filters"),
}


@pytest.mark.parametrize("name", LISTS)
def test_empty_and_filtered_empty_are_two_texts(db, signed_in, name):
    query, empty, filtered = LISTS[name]
    client = signed_in("viewer")
    first, second = client.get(reverse(name)), client.get(reverse(name) + query)
    assert empty in first.text and filtered not in first.text
    assert filtered in second.text and empty not in second.text
    assert "Clear all" in second.text


def test_empty_lists_say_what_to_do_first(db, admin):
    for name, text in {
        "services": "Add one provider route",
        "prices": "No service is open",
        "tokens": "Issue one for an account",
        "health": "Run manage.py db_verify",
        "reconciliation": "The first one runs right after the start of a process.",
        "home": "The first model request shows up here",
    }.items():
        assert text in admin.get(reverse(name)).text


def test_forbidden_and_unavailable_are_two_more_texts(db, signed_in, monkeypatch):
    nobody = signed_in().get(reverse("requests"))
    assert nobody.status_code == 403
    assert "Your role (none) may not see the console. Allowed:" in nobody.text

    def gone(*args, **kwargs):
        raise OperationalError(2006, "Server has gone away")

    monkeypatch.setattr(requests_screen, "request_page", gone)
    viewer = signed_in("viewer", raise_request_exception=False)
    answer = viewer.get(reverse("requests"))
    assert answer.status_code == 503
    assert answer["Retry-After"]
    assert "The database does not answer" in answer.text
    assert "gone away" not in answer.text
    part = viewer.get(reverse("requests"), headers={"HX-Request": "true"})
    assert part.status_code == 500, "htmx keeps what the page shows"


def test_an_error_of_ours_is_not_called_unavailable(db, signed_in, monkeypatch):
    def broken(*args, **kwargs):
        raise ValueError("a defect")

    monkeypatch.setattr(requests_screen, "request_page", broken)
    answer = signed_in("viewer", raise_request_exception=False).get(reverse("requests"))
    assert answer.status_code == 500
    assert "Something broke on our side" in answer.text
    assert "a defect" not in answer.text


@pytest.mark.parametrize("name", ["home", "requests"])
def test_a_page_asks_few_queries_whatever_the_number_of_rows(acme, operator, name):
    def queries():
        operator.get(reverse(name))  # the session is young, so it is not written
        with CaptureQueriesContext(connection) as captured:
            operator.get(reverse(name))
        return len(captured)

    lives.unknown("op-0")
    few = queries()
    for number in range(40):
        lives.settled(f"op-{number + 1}")
    assert queries() == few <= QUERIES_MAX


def test_pending_is_a_word_and_never_zero(acme, operator):
    fence = lives.dispatched("op-1")
    lives.save(lives.answer_of(fence, metering=None))
    lives.settle(fence.request_id)
    row = re.search(r"<tbody>.*?</tbody>", operator.get(reverse("requests")).text, re.DOTALL)
    assert "pending" in row.group() and "$0" not in row.group()


def test_the_account_says_settled_and_pending_up_to(acme, operator):
    lives.settled("op-1")
    lives.unknown("op-2")
    page = operator.get(reverse("account", args=["acme"])).text
    words = re.sub(r"<[^>]+>", "", page)
    assert re.search(r"Settled \$0\.0000625 \+ pending up to \$0\.\d+", words)


def test_without_a_bound_the_account_says_so(acme, operator):
    usage.change_account(account_id="acme", version=1, actor=lives.ACTOR, cap_nano=None)
    lives.unknown("op-1")
    page = operator.get(reverse("account", args=["acme"])).text
    assert "pending without an upper bound" in page


def test_the_request_page_lists_what_people_did(acme, operator):
    row = lives.resolved("op-1")
    page = operator.get(reverse("request", args=[row.id])).text
    assert "What people did" in page
    assert "Resolved the unknown outcome" in page and "the provider has no such call" in page


def test_a_charge_is_derived_line_by_line(acme, operator):
    row = lives.settled("op-1")
    page = re.sub(r"<[^>]+>", " ", operator.get(reverse("request", args=[row.id])).text)
    for text in ("$2.5", "$0.0000225", "$10", "$0.00004", "openai/gpt-4o"):
        assert text in page


def test_the_exact_bytes_of_a_body_are_a_download_that_no_browser_runs(acme, operator):
    row = lives.settled("op-1")
    answer = operator.get(reverse("request-body", args=[row.id, "result"]))
    assert answer.content == usage.read_body(request_id=row.id, kind="result")
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"] == f'attachment; filename="{row.id}.result"'
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert operator.get(reverse("request-body", args=[row.id, "other"])).status_code == 404


@pytest.mark.parametrize(
    "wanted", ["request", "operation", "ledger", "account", "service", "token", "person", "act"]
)
def test_the_go_to_box_takes_any_id(acme, admin, wanted):
    row = lives.settled("op-1")
    token = access.issue_token(
        account_id="acme", name="ci", scopes=["usage:read"], actor=lives.ACTOR
    )[0]
    act = AuditRow.objects.get(subject="account:acme")
    request_page = reverse("request", args=[row.id])
    text, page = {
        "request": (row.id, request_page),
        "operation": (" op-1 ", request_page),
        "ledger": (usage.explain_charge(request=row).ledger.id, request_page),
        "account": ("acme", reverse("account", args=["acme"])),
        "service": ("gpt", reverse("service", args=["gpt"])),
        "token": (token.id, f"{reverse('audit')}?subject=token:{token.id}"),
        "person": ("admin", reverse("person-change", args=["admin"])),
        "act": (act.id, reverse("act", args=[act.id])),
    }[wanted]
    answer = admin.get(reverse("go-to"), {"q": text})
    assert answer.status_code == 303
    assert answer["Location"] == page
    assert admin.get(page).status_code == 200


@pytest.mark.parametrize(("text", "name"), [("your acc", "you"), ("PREF", "preferences")])
def test_ones_own_pages_are_found_by_name_and_have_keys(signed_in, text, name):
    viewer = signed_in("viewer")
    answer = viewer.get(reverse("go-to"), {"q": text})
    assert answer.status_code == 303 and answer["Location"] == reverse(name)
    page = viewer.get(reverse("home")).text
    assert f'href="{reverse(name)}"' in page and '<option value="Your account">' in page
    assert 'data-go="y"' in page and 'data-go="v"' in page


def test_an_id_with_two_meanings_is_a_choice_and_an_unknown_one_is_404(acme, admin):
    lives.open_account("gpt")
    page = admin.get(reverse("go-to"), {"q": "gpt"})
    assert page.status_code == 200
    assert "Account" in page.text and "Service" in page.text
    for text in ("nothing", "<b>", "שלום", "x" * 300):
        missing = admin.get(reverse("go-to"), {"q": text})
        assert missing.status_code == 404
        assert "No screen and nothing else has this name" in missing.text


def test_an_operation_of_several_accounts_is_listed_by_account(acme, admin):
    lives.open_account("other")
    for account in ("acme", "other"):
        lives.admitted("op-1", account=account)
    page = admin.get(reverse("go-to"), {"q": "op-1"}).text
    assert "Operation of acme" in page and "Operation of other" in page


def test_a_viewer_reaches_every_page_that_a_link_on_these_pages_names(made, signed_in):
    viewer: Client = signed_in("viewer")
    dead, reached = {}, set()
    for address in looked_at(made):
        page = viewer.get(address).text
        main = page[page.index("<main") : page.index("</main>")]
        for link in set(re.findall(r'href="(/[^"#]*|\?[^"#]*)"', main)):
            target = link.replace("&amp;", "&")
            target = address.partition("?")[0] + target if target.startswith("?") else target
            if target not in reached and viewer.get(target).status_code != 200:
                dead[target] = address
            reached.add(target)
    assert not dead


def test_a_list_that_stops_somewhere_says_so(acme, admin, monkeypatch):
    for name in ("one", "two"):
        access.issue_token(account_id="acme", name=name, scopes=["usage:read"], actor=lives.ACTOR)
    for screen in ("tokens", "people"):
        assert "are listed" not in admin.get(reverse(screen)).text
    monkeypatch.setattr("console.views.access.LISTED_MAX", 1)
    for screen in ("tokens", "people"):
        assert "Only the first 1 are listed." in admin.get(reverse(screen)).text


def test_the_lists_of_the_kernel_stop_where_the_console_says(acme):
    assert LISTED_MAX == 500
    for module in ("people", "tokens"):
        source = (ROOT / "kernel" / "access" / f"{module}.py").read_text()
        assert f"[:{LISTED_MAX}]" in source


def test_a_running_pass_shows_its_progress_and_is_asked_more_often(acme, operator):
    lives.complete("op-1")
    page = operator.get(reverse("reconciliation")).text
    assert "<progress" not in page and 'data-poll="15"' in page
    console_data.pass_status("settlement", running=True, scanned=50, settled=48, has_more=True)
    page = operator.get(reverse("reconciliation")).text
    assert "A pass is running" in page and "<progress" in page
    assert 'data-poll="2"' in page
    part = operator.get(
        f"{reverse('reconciliation')}?poll=1",
        headers={"HX-Request": "true", "HX-Polling": "true"},
    ).text
    assert "<progress" in part and "<html" not in part
    assert form_to(page, reverse("reconciliation-run")).method == "post"
