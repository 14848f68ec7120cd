"""Requests: the list, one request, and what an operator may do with it."""

from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_safe

from console.access import needs
from console.acting import actor_of, moment_of, on_kernel_loop, refused, version_of
from console.filters import read_filters
from console.middleware import is_poll
from console.paging import Cursor
from console.queries.requests import FILTERS, changed_since, request_page
from console.responses import Screen, form_version
from console.statuses import word_of
from console.step_up import step_up
from console.views.news import news, seen_moment
from console.views.request_page import (
    ConfirmForm,
    ResolveForm,
    detail_context,
    outcome_text,
    why_not,
)
from kernel import clock, usage
from kernel.errors import KernelError, LostRace, NotFound
from kernel.ids import is_id
from kernel.kernel import Kernel
from kernel.models import Request

DETAIL = "console/requests/detail.html"
RESOLVE_PART = "console/requests/_resolve.html"


@needs("view")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """The keyset list. Two queries beside the shell's. A poll asks only how many are new."""
    chosen = read_filters(request.GET, FILTERS)
    if is_poll(request):
        found = changed_since(chosen, seen_moment(request))
        return news(request, changed=found, href=chosen.query() or request.path)
    cursor = Cursor.read(request.GET)
    page = request_page(chosen, cursor)
    newest = page.rows[0].updated_at if page.rows else clock.now()
    return Screen(request, "console/requests/index.html", "console/requests/_list.html").show(
        {
            "rows": page.rows,
            "page": page.page,
            "chosen": chosen,
            "is_later": cursor is not None,
            "news_address": "" if cursor else chosen.query(poll="1", seen=str(version_of(newest))),
        }
    )


@needs("view")
@require_safe
def detail(request: HttpRequest, request_id: str) -> HttpResponse:
    """One request: its life, its charge, its bodies. A poll asks only whether it changed."""
    row = _row(request_id)
    if is_poll(request):
        if row.updated_at == seen_moment(request):
            return HttpResponse(status=204)
        return news(request, row=row, href=reverse("request", args=[row.id]))
    return Screen(request, DETAIL, RESOLVE_PART).show(detail_context(row))


@needs("view")
@require_GET
def body(request: HttpRequest, request_id: str, kind: str) -> HttpResponse:
    """The exact bytes of a body, as a download that no browser runs; 410 after its retention."""
    row = _row(request_id)
    is_kind = kind in ("request", "result")
    data = usage.read_body(request_id=row.id, kind=kind) if is_kind else None
    if is_kind and data is None and row.purged_at is not None:
        return Screen(request, DETAIL, RESOLVE_PART).show(detail_context(row), status=410)
    if data is None:
        raise Http404
    response = HttpResponse(data, content_type="application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="{row.id}.{kind}"'
    return response


def _recording(request: HttpRequest, request_id: str) -> str:
    row = _row(request_id)
    words = {"id": row.operation_id, "outcome": outcome_text(row, request.POST.get("outcome", ""))}
    return _("Record about the request %(id)s: “%(outcome)s”") % words


@needs("operate")
@step_up(_recording)
def resolve(request: HttpRequest, request_id: str) -> HttpResponse:
    """Record what happened: the outcome of an unknown, the metering of a pending (A9, A11b)."""
    row = _row(request_id)
    screen = Screen(request, DETAIL, RESOLVE_PART)
    if request.method != "POST":
        return screen.show(detail_context(row))
    form = ResolveForm(request.POST, row=row)
    seen, valid = moment_of(form_version(request)), form.is_valid()
    back = reverse("request", args=[row.id])
    try:
        if row.updated_at != seen:  # before its fields: another state offers other outcomes
            raise _changed(row)
        if not valid:
            return screen.invalid(detail_context(row, form=form))
        after = form.apply(actor=actor_of(request), seen_updated_at=seen)
    except KernelError as error:
        context = detail_context(_row(request_id), form=form)
        return refused(
            request, screen, error, context, form=form, back=back, subject=f"request:{row.id}"
        )
    message = _("Recorded. The request is %(state)s now.") % {"state": word_of(after.billing_state)}
    return screen.done(to=back, message=message)


@needs("operate")
def cancel(request: HttpRequest, request_id: str) -> HttpResponse:
    """Cancel, after a confirmation that says what it means in this state (A16)."""

    def act(row: Request, note: str) -> str:
        seen = moment_of(form_version(request))
        usage.cancel(request_id=row.id, actor=actor_of(request), reason=note, seen_updated_at=seen)
        return _("Cancelled.")

    return _confirmed(request, request_id, "cancel", act)


@needs("operate")
def dispatch(request: HttpRequest, request_id: str) -> HttpResponse:
    """Send an admitted request under its original identity, after a confirmation (A3)."""

    def act(row: Request, note: str) -> str:
        actor = actor_of(request)

        async def send(kernel: Kernel) -> None:
            flight = await kernel.gateway.dispatch(row, actor=actor, reason=note)
            await flight.wait_dispatched()

        on_kernel_loop(request, send)
        return _("Dispatched. The answer is saved when it arrives.")

    return _confirmed(request, request_id, "dispatch", act)


def _confirmed(
    request: HttpRequest, request_id: str, what: str, act: Callable[[Request, str], str]
) -> HttpResponse:
    row = _row(request_id)
    screen = Screen(request, "console/requests/confirm.html", "console/requests/_confirm.html")
    form = ConfirmForm(request.POST or None)
    context = _confirm_context(row, what, form)
    if request.method != "POST":
        return screen.show(context)
    if not form.is_valid():
        return screen.invalid(context)
    back = reverse("request", args=[row.id])
    try:
        message = act(row, form.cleaned_data["note"])
    except KernelError as error:
        return refused(
            request,
            screen,
            error,
            _confirm_context(_row(request_id), what, form),
            form=form,
            back=back,
            subject=f"request:{row.id}",
        )
    return screen.done(to=back, message=message)


def _confirm_context(row: Request, what: str, form: ConfirmForm) -> dict[str, Any]:
    return {
        "row": row,
        "what": what,
        "form": form,
        "version": version_of(row.updated_at),
        "why": why_not(row)[what],
    }


def _changed(row: Request) -> LostRace:
    return LostRace(
        _("It is %(result)s, %(billing)s now.")
        % {"result": word_of(row.result_state), "billing": word_of(row.billing_state)},
        result_state=row.result_state,
        billing_state=row.billing_state,
    )


def _row(request_id: str) -> Request:
    if not is_id(request_id):
        raise Http404
    try:
        return usage.get_request_by_id(request_id=request_id)
    except NotFound:
        raise Http404 from None
