"""Audit, health, and the "go to" box."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.access import needs
from console.acting import kernel_of
from console.filters import read_filters
from console.paging import Cursor
from console.queries.audit import FILTERS, audit_page
from console.queries.passes import passes, processes
from console.responses import Screen, see_other
from kernel import schema
from kernel.errors import KernelError
from kernel.ids import ALLOWED
from kernel.models import Account, CheckReport, LedgerRow, Request, Service

FOUND_MAX = 20


@needs("view")
@require_GET
def audit(request: HttpRequest) -> HttpResponse:
    """Who did what, newest first."""
    chosen = read_filters(request.GET, FILTERS)
    found = audit_page(chosen, Cursor.read(request.GET))
    return Screen(request, "console/audit/index.html", "console/audit/_list.html").show(
        {"rows": found.rows, "page": found.page, "chosen": chosen}
    )


@needs("view")
@require_GET
def health(request: HttpRequest) -> HttpResponse:
    """The schema, the last check of the invariants (never run here), this process, all processes."""
    views = passes()
    return Screen(request, "console/health/index.html", "console/health/_state.html").show(
        {
            "schema": schema.state(),
            "checks": CheckReport.objects.order_by("name"),
            "processes": processes(views),
            "here": _here(request),
        }
    )


@needs("view")
@require_GET
def go_to(request: HttpRequest) -> HttpResponse:
    """Any id leads to its page: request, operation, ledger row, account, service."""
    text = request.GET.get("q", "").strip()
    places = _places(text) if ALLOWED.match(text) else []
    if len(places) == 1:
        return see_other(places[0]["href"])
    if not text:
        messages.info(request, _("Type an id: of an operation, a request, an account, a service."))
        return see_other(reverse("home"))
    return Screen(request, "console/go_to.html", "console/go_to.html").show(
        {"text": text, "places": places}
    )


def _places(text: str) -> list[dict[str, Any]]:
    if text.startswith("req_") and Request.objects.filter(id=text).exists():
        return [_place(_("Request"), text, reverse("request", args=[text]))]
    if text.startswith("led_"):
        row = LedgerRow.objects.filter(id=text).only("request_id").first()
        if row:
            return [_place(_("Ledger row"), text, reverse("request", args=[row.request_id]))]
    accounts = list(Account.objects.order_by("id").values_list("id", flat=True)[:1000])
    # The unique key starts with the account, so this is one index look-up per account.
    found = Request.objects.filter(account_id__in=accounts, operation_id=text)
    places = [
        _place(
            _("Operation of %(a)s") % {"a": account}, text, reverse("request", args=[request_id])
        )
        for request_id, account in found.values_list("id", "account_id")[:FOUND_MAX]
    ]
    if text in accounts:
        places.append(_place(_("Account"), text, reverse("account", args=[text])))
    if Service.objects.filter(id=text).exists():
        places.append(_place(_("Service"), text, reverse("service-change", args=[text])))
    return places


def _place(what: str, name: str, href: str) -> dict[str, Any]:
    return {"what": what, "name": name, "href": href}


def _here(request: HttpRequest) -> dict[str, Any] | None:
    try:
        kernel = kernel_of(request)
    except KernelError:
        return None
    return {
        "owner": kernel.owner,
        "pending": {kind: n for kind, n in kernel.background.pending().items() if n},
        "failures": dict(kernel.background.failures),
        "running": kernel.gateway.running,
        "database": kernel.database.pending,
        "drain_timeouts": kernel.drain_timeouts,
        "accepting": kernel.background.accepting,
    }
