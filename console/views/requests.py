"""Requests: the list, one request, and what an operator may do with it."""

from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.access import needs
from console.acting import actor_of, moment_of, on_kernel_loop, version_of
from console.filters import read_filters
from console.paging import Cursor
from console.queries.requests import FILTERS, request_page
from console.responses import Screen, form_version
from console.views.request_page import ConfirmForm, ResolveForm, detail_context
from kernel import usage
from kernel.errors import KernelError, NotFound
from kernel.ids import ALLOWED
from kernel.kernel import Kernel
from kernel.models import Request

DETAIL = "console/requests/detail.html"
RESOLVE_PART = "console/requests/_resolve.html"


@needs("view")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """The keyset list. Two queries beside the shell's."""
    chosen = read_filters(request.GET, FILTERS)
    found = request_page(chosen, Cursor.read(request.GET))
    return Screen(request, "console/requests/index.html", "console/requests/_list.html").show(
        {"rows": found.rows, "page": found.page, "chosen": chosen}
    )


@needs("view")
@require_GET
def detail(request: HttpRequest, request_id: str) -> HttpResponse:
    """One request: its life, its charge, its bodies."""
    row = _row(request_id)
    return Screen(request, DETAIL, RESOLVE_PART).show(detail_context(row))


@needs("view")
@require_GET
def body(request: HttpRequest, request_id: str, kind: str) -> HttpResponse:
    """The exact bytes of a body, as a download that no browser runs."""
    row = _row(request_id)
    data = usage.read_body(request_id=row.id, kind=kind) if kind in ("request", "result") else None
    if data is None:
        raise Http404
    response = HttpResponse(data, content_type="application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="{row.id}.{kind}"'
    return response


@needs("operate")
def resolve(request: HttpRequest, request_id: str) -> HttpResponse:
    """Record what really happened: an unknown outcome, or metering of a pending charge (A9, A11b)."""
    row = _row(request_id)
    screen = Screen(request, DETAIL, RESOLVE_PART)
    if request.method != "POST":
        return screen.show(detail_context(row))
    form = ResolveForm(request.POST, row=row)
    if not form.is_valid():
        return screen.invalid(detail_context(row, form=form))
    try:
        after = form.apply(
            actor=actor_of(request), seen_updated_at=moment_of(form_version(request))
        )
    except KernelError as error:
        return screen.problem(error, detail_context(_row(request_id), form=form))
    message = _("Recorded. The request is %(state)s now.") % {"state": after.billing_state}
    return screen.done(to=reverse("request", args=[row.id]), message=message)


@needs("operate")
def cancel(request: HttpRequest, request_id: str) -> HttpResponse:
    """Cancel, after a confirmation that says what it means in this state (A16)."""

    def act(row: Request, note: str) -> str:
        usage.cancel(request_id=row.id, actor=actor_of(request), reason=note)
        return _("Cancelled.")

    return _confirmed(request, request_id, "cancel", act)


@needs("operate")
def dispatch(request: HttpRequest, request_id: str) -> HttpResponse:
    """Send an admitted request under its original identity, after a confirmation (A3)."""

    def act(row: Request, note: str) -> str:
        async def send(kernel: Kernel) -> None:
            flight = await kernel.gateway.dispatch(row)
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
    context: dict[str, Any] = {"row": row, "what": what, "form": form}
    context["version"] = version_of(row.updated_at)
    if request.method != "POST":
        return screen.show(context)
    if not form.is_valid():
        return screen.invalid(context)
    try:
        message = act(row, form.cleaned_data["note"])
    except KernelError as error:
        return screen.problem(error, {**context, "row": _row(request_id)})
    return screen.done(to=reverse("request", args=[row.id]), message=message)


def _row(request_id: str) -> Request:
    if not ALLOWED.match(request_id):
        raise Http404
    try:
        return usage.get_request_by_id(request_id=request_id)
    except NotFound:
        raise Http404 from None
