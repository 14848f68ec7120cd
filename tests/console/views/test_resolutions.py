"""What a page says after an operator's word, and the document that names the choices (A9, D3)."""

import re

import pytest
from django.urls import reverse

from console.views.calls import ResolveCallForm
from console.views.request_page import ResolveForm
from kernel import usage
from kernel.models import Request, ToolCall
from tests.console.views.conftest import rendered, send
from tests.support import lives, work_data
from tests.support.pages import form_to
from tests.tidy.tree import ROOT

DOCUMENT = ROOT / "docs" / "operations" / "unknown-outcomes.md"
LOST = "The process that sent this request stopped before it saved an outcome."
FOUND = {
    "not_executed": "An operator found that it was not executed.",
    "executed": "An operator found that it was executed.",
    "not_metered": "An operator found that it was executed.",
}
SAVED = '{"meters":{"input":9,"output":4},"raw":"{}"}'
TOKENS = {"input_tokens": "9", "output_tokens": "4"}


def lost(operation_id="op-1"):
    row = lives.unknown(operation_id)
    Request.objects.filter(id=row.id).update(error_code="owner_lost", error_text=LOST)
    return row.id


def resolve(client, request_id, outcome, **values):
    page = client.get(reverse("request", args=[request_id])).text
    form = form_to(page, reverse("request-resolve", args=[request_id]))
    return send(client, form, outcome=outcome, note="Its log says so.", **values)


def test_a_hold_is_spoken_of_only_where_there_is_one(acme, operator):
    held = operator.get(reverse("request", args=[lost("op-1")])).text
    assert "The hold stays until then." in held and "the account has no cap" not in held
    usage.change_account(account_id="acme", version=1, actor=lives.ACTOR, cap_nano=None)
    free = operator.get(reverse("request", args=[lost("op-2")])).text
    assert "The outcome is not known" in free and "The hold stays until then." not in free
    hold = free[free.index(">Hold<") :][:200]
    assert "none" in hold and "the account has no cap" in hold and "$" not in hold


def step(page, title):
    """The text under a step of the page's first timeline."""
    rest = page[page.index(f'class="step-title">{title}<') :]
    return re.sub(r"<[^>]+>", "", rest[: rest.index("</li>")])


@pytest.mark.parametrize("outcome", FOUND)
def test_a_resolved_request_says_what_the_operator_found_and_why_it_was_unknown(
    acme, operator, outcome
):
    request_id = lost()
    done = resolve(operator, request_id, outcome, **(TOKENS if outcome == "executed" else {}))
    assert done.status_code == 303
    page = operator.get(reverse("request", args=[request_id])).text
    assert LOST in step(page, "Unknown") and LOST not in step(page, "Failed")
    assert FOUND[outcome] in step(page, "Failed")
    error = page[page.index(f"resolved_{'not_' * (outcome == 'not_executed')}executed") :]
    assert FOUND[outcome] in error[:200]
    billing = {"not_executed": "not_charged", "executed": "settled", "not_metered": "pending"}
    assert Request.objects.get(id=request_id).billing_state == billing[outcome]


def test_an_executed_one_needs_its_metering_or_the_word_that_it_is_not_known(acme, operator):
    request_id = lost()
    without = resolve(operator, request_id, "executed")
    assert without.status_code == 422 and "needs input and output tokens" in without.text
    both = resolve(operator, request_id, "not_metered", **TOKENS)
    assert both.status_code == 422 and "choose to charge them" in both.text
    assert Request.objects.get(id=request_id).result_state == "unknown"


def test_saved_metering_that_counts_is_charged_and_never_said_to_stay_pending(acme, operator):
    request_id = lost()
    Request.objects.filter(id=request_id).update(usage_text=SAVED)
    page = operator.get(reverse("request", args=[request_id])).text
    assert "metering not known" not in page and "or without one the saved" in page
    assert resolve(operator, request_id, "executed").status_code == 303
    row = Request.objects.get(id=request_id)
    assert (row.billing_state, row.pending_reason) == ("settled", "")


def test_saved_metering_that_does_not_count_still_needs_a_word(acme, operator):
    request_id = lost()
    broken = SAVED.replace('"raw"', '"reason":"inconsistent_usage","raw"')
    Request.objects.filter(id=request_id).update(usage_text=broken)
    assert resolve(operator, request_id, "executed").status_code == 422
    assert resolve(operator, request_id, "not_metered").status_code == 303
    row = Request.objects.get(id=request_id)
    assert (row.billing_state, row.pending_reason) == ("pending", "inconsistent_usage")


def test_a_charge_that_is_settled_already_is_not_said_to_be_nothing_owed(acme, operator):
    request_id = lives.settled("op-1").id
    Request.objects.filter(id=request_id).update(result_state="unknown", error_code="body_broken")
    page = operator.get(reverse("request", args=[request_id])).text
    assert "its charge stays until somebody corrects it" in page
    assert "nothing is owed" not in page and "input_tokens" not in page


@pytest.mark.parametrize("outcome,word", [("done", "Done"), ("not_done", "Not executed")])
def test_a_resolved_call_says_so_on_its_pages(desk, operator, outcome, word):
    one = work_data.refund("order-1")
    work_data.decide(one.approval_ids[0], "approved")
    work_data.lose_worker(work_data.send(one.job_id))
    call_id = f"{one.job_id}.1.0"
    send(operator, rendered(operator, "call", call_id), outcome=outcome, note="The shop says so.")
    assert ToolCall.objects.get(id=call_id).note == "The shop says so."
    for address in (
        reverse("call", args=[call_id]),
        reverse("approval", args=one.approval_ids),
        reverse("job", args=[one.job_id]),
    ):
        page = operator.get(address).text
        assert f">{word}<" in page, address
        assert "Nobody knows whether it was done" not in page


def test_the_document_names_the_choices_of_the_forms_word_for_word():
    unknown = Request(result_state="unknown", billing_state="pending", pending_reason="no_usage")
    metered = Request(result_state="unknown", billing_state="pending", usage_text=SAVED)
    pending = Request(result_state="failed", billing_state="pending", pending_reason="no_usage")
    offered = {
        str(label)
        for row in (unknown, metered, pending)
        for _value, label in ResolveForm(row=row).fields["outcome"].choices
    }
    offered |= {str(label) for _value, label in ResolveCallForm.base_fields["outcome"].choices}
    text = " ".join(DOCUMENT.read_text().split())
    emphasised = re.findall(r"\*([^*]+)\*", text.replace("**", ""))
    named = {one for one in emphasised if one[0].isupper() and " " in one}
    assert named == offered
