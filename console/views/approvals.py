"""Approvals: the list by tab, one question, and the decision about it."""

import re
from typing import Any

from django.contrib import messages
from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST, require_safe

from console.access import needs
from console.acting import actor_of, refused, version_of
from console.filters import read_filters
from console.middleware import is_poll
from console.migrated import needs_migration
from console.paging import Cursor
from console.queries.approvals import FILTERS, OPEN, approval_page, opened_since
from console.responses import RETRY_SECONDS, Screen, form_key, see_other
from console.step_up import asked
from console.views.approval_page import (
    HIGH,
    DecideForm,
    approval_context,
    has_drifted,
    page_version,
    row_or_404,
    who_was_first,
    why_not_anew,
)
from console.views.news import seen_moment
from console.waking import start_pass, store_of, wake_worker
from kernel import clock
from kernel.approvals.continuations import Answer, decide_and_carry, retry_now
from kernel.approvals.decisions import Decision
from kernel.errors import Conflict, KernelError, NotFound
from kernel.ids import is_id, new_id
from kernel.models import Approval, Tool
from kernel.schema import AGENT_JOBS, CONTINUATIONS
from kernel.states import ApprovalState

DETAIL, STATE_PART = "console/approvals/detail.html", "console/approvals/_state.html"
DECIDE, DECIDE_PART = "console/approvals/decide.html", "console/approvals/_decide.html"
SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@needs("view")
@require_GET
@needs_migration(AGENT_JOBS)
def index(request: HttpRequest, tab: str = OPEN) -> HttpResponse:
    """One tab. Constant queries. A poll of the open ones asks only what came and what went."""
    chosen = read_filters(request.GET, FILTERS)
    if is_poll(request):
        return _list_news(request)
    cursor = Cursor.read(request.GET)
    page = approval_page(tab, chosen, cursor)
    newest = page.rows[0].row.created_at if page.rows else clock.now()
    seen = chosen.query(poll="1", seen=str(version_of(newest)))
    return Screen(request, "console/approvals/index.html", "console/approvals/_list.html").show(
        {
            "tab": tab,
            "rows": page.rows,
            "page": page.page,
            "chosen": chosen,
            "is_later": cursor is not None,
            "news_address": seen if tab == OPEN and cursor is None else "",
        }
    )


def _list_news(request: HttpRequest) -> HttpResponse:
    chosen = read_filters(request.GET, FILTERS)
    came = opened_since(chosen, seen_moment(request))
    if not came.value:
        return HttpResponse(status=204)
    context = {"came": came, "href": chosen.query() or request.path}
    return render(request, "console/approvals/_news.html", context)


@needs("view")
@require_safe
@needs_migration(AGENT_JOBS)
def detail(request: HttpRequest, approval_id: str) -> HttpResponse:
    """One question. A poll answers 204, its new state, or (from a form) one line about it."""
    row = row_or_404(approval_id)
    seen = request.GET.get("seen", "")
    if is_poll(request) and page_version(row) == seen:
        return HttpResponse(status=204)
    context = approval_context(request, row)
    # Said aloud once, and not again with each later move of the job.
    context["was_closed"] = is_poll(request) and not seen.endswith(f"-{ApprovalState.OPEN}")
    if is_poll(request) and "line" in request.GET:
        return render(request, "console/approvals/_news.html", context)
    return Screen(request, DETAIL, STATE_PART).show(context)


@needs("decide")
@needs_migration(CONTINUATIONS, AGENT_JOBS)
def decide(request: HttpRequest, approval_id: str, decision: str) -> HttpResponseBase:
    """The confirmation and the act: GET never decides, POST decides once (C2-C4)."""
    row = row_or_404(approval_id)
    screen = Screen(request, DECIDE, DECIDE_PART)
    form = DecideForm(request.POST or None, row=row, decision=decision)
    if request.method != "POST":
        return screen.show(_decide_context(request, row, decision, form))
    order = _order(request, row, decision, form)
    if not form.is_valid():
        context = _decide_context(request, row, decision, form)
        return screen.invalid(context | {"decision_id": order.decision_id})
    if decision == "approved" and row.risk == HIGH:
        proof = asked(request, lambda: _("Approve: %(what)s") % {"what": row.effect or row.tool})
        if proof is not None:
            return proof
    try:
        answer = decide_and_carry(order=order, store=store_of(request))
    except KernelError as error:
        return _refused(request, screen, error, order, form)
    wake_worker(request)
    if answer.http_status == 503:
        return _continuing(request, screen, answer, order, form)
    unsent = _unsent_text(answer.approval)
    if unsent:
        messages.warning(request, unsent)
    to = reverse("approval", args=[row.id])
    return screen.done(to=to, message="" if unsent else _done_text(answer))


def _decide_context(
    request: HttpRequest, row: Approval, decision: str, form: DecideForm
) -> dict[str, Any]:
    return {
        **approval_context(request, row),
        "decision": decision,
        "form": form,
        "decision_id": new_id("dec"),
    }


def _order(request: HttpRequest, row: Approval, decision: str, form: DecideForm) -> Decision:
    """What the rendered form carries. BadRequest when it was not rendered by us."""
    decision_id, sha256 = request.POST.get("decision_id", ""), request.POST.get("sha256", "")
    if not is_id(decision_id) or not SHA256.match(sha256):
        raise BadRequest(_("This form carries no decision. Open it again and repeat."))
    return Decision(
        approval_id=row.id,
        decision=decision,
        decision_id=decision_id,
        reason=form.data.get("reason", "").strip(),
        actor=actor_of(request),
        seen_sha256=sha256,
    )


def _refused(
    request: HttpRequest, screen: Screen, error: KernelError, order: Decision, form: DecideForm
) -> HttpResponse:
    """Who decided what and when, with the typed note kept; the row is read again first."""
    row = row_or_404(order.approval_id)
    context = _decide_context(request, row, order.decision, form)
    if not isinstance(error, Conflict):  # a conflict ends this decision; anything else may repeat
        context["decision_id"] = order.decision_id
    elif row.decided_at is not None:  # the page below says the rest
        error.message = who_was_first(row)
        error.details.clear()
        error.way_out = ""
    back = reverse("approval", args=[row.id])
    return refused(request, screen, error, context, form=form, back=back)


def _continuing(
    request: HttpRequest, screen: Screen, answer: Answer, order: Decision, form: DecideForm
) -> HttpResponse:
    """503: the decision is recorded, carrying it through goes on; the same form repeats it (C4)."""
    row = row_or_404(answer.approval.id)
    context = _decide_context(request, row, order.decision, form) | {
        "is_continuing": True,
        "decision_id": order.decision_id,
        "sha256": order.seen_sha256,
        "repeat_key": form_key(request),
    }
    response = screen.show(context, status=503)
    response.headers["Retry-After"] = str(RETRY_SECONDS)
    address = reverse("approval", args=[row.id])
    response.headers["Refresh"] = f"{RETRY_SECONDS}; url={address}"  # without script
    return response


def _done_text(answer: Answer) -> str:
    row = answer.approval
    if row.decision == "denied":
        return _("Denied. Nothing is called.")
    if answer.continuation_pending:
        return _("Approved. The job is busy with something else; it goes on by itself.")
    if not row.job_id:
        return _("Approved. The agent that asked resumes its invocation itself.")
    return _("Approved. The job goes on.")


def _unsent_text(row: Approval) -> str:
    """What an approval does when the tool changed since it was asked; '' when it did not."""
    tool = Tool.objects.filter(id=row.tool).first()
    is_unused = row.state in (ApprovalState.APPROVED, ApprovalState.CANCELLED)
    if row.decision != "approved" or not is_unused or tool is None or not has_drifted(row, tool):
        return ""
    start = _("Recorded, but this call is not sent: the tool changed since it was asked.")
    if why_not_anew(row, tool):
        return start
    version = {"n": tool.version}
    if row.job_id:
        then = _("The job asks anew under version %(n)s; decide that question too.") % version
    else:
        then = _("When the agent resumes, it is asked anew under version %(n)s.") % version
    return f"{start} {then}"


@needs("operate")
@require_POST
@needs_migration(CONTINUATIONS, AGENT_JOBS)
def retry(request: HttpRequest, approval_id: str) -> HttpResponse:
    """Try again now to carry a recorded decision through (C7)."""
    row = row_or_404(approval_id)
    screen = Screen(request, DETAIL, STATE_PART)
    try:
        retry_now(approval_id=row.id, actor=actor_of(request))
    except NotFound:
        raise Http404 from None
    except KernelError as error:
        return screen.problem(error, approval_context(request, row_or_404(row.id)))
    start_pass(request, "continuations")
    back = reverse("approval", args=[row.id])
    if not request.headers.get("HX-Request"):
        return see_other(back)
    return screen.done(
        to=back,
        message=_("It is tried again now."),
        context=approval_context(request, row_or_404(row.id)),
    )
