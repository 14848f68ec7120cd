"""The "go to" box: any id, or the name of a screen, leads to its page."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.access import ability, needs, permissions_of
from console.migrated import is_migrated
from console.navigation import own_screens, sidebar
from console.queries.jobs import jobs_of_request
from console.responses import Screen, see_other
from console.views.delivery_places import delivery_place, delivery_places
from kernel import usage
from kernel.ids import is_id
from kernel.models import (
    Account,
    Approval,
    AuditRow,
    Job,
    LedgerRow,
    Request,
    Service,
    Token,
    ToolCall,
)
from kernel.usage.lookup import Found

Place = dict[str, Any]


@needs("view")
@require_GET
def go_to(request: HttpRequest) -> HttpResponse:
    """A screen's name or any id leads to its page; 404 in words when nothing has it."""
    text = request.GET.get("q", "").strip()
    if not text:
        messages.info(
            request,
            _("Type a screen's name, or an id: of a request, a job, an approval, an account."),
        )
        return see_other(reverse("home"))
    screens = _screens(request, text)
    named = [one for one in screens if one["name"].casefold() == text.casefold()]
    found, cut_at = ([], 0) if named else _places(request, text)
    places = named or found or screens
    if len(places) == 1 and not cut_at:
        return see_other(places[0]["href"])
    return Screen(request, "console/go_to.html", "console/go_to.html").show(
        {"text": text, "places": places, "cut_at": cut_at},
        status=200 if places else 404,
    )


def _screens(request: HttpRequest, text: str) -> list[Place]:
    """Screens of this person of whose name a word begins so."""
    wanted = text.casefold()
    groups = sidebar(permissions=permissions_of(request.user))
    links = [*(link for group in groups for link in group.links), *own_screens()]
    return [
        _place(_("Screen"), str(link.screen.label), link.address)
        for link in links
        if any(part.startswith(wanted) for part in _beginnings(str(link.screen.label)))
    ]


def _beginnings(label: str) -> list[str]:
    """The label and its later words: 'jobs and workers' is found by 'workers' as well."""
    words = label.casefold().split()
    return [" ".join(words[start:]) for start in range(len(words))]


def _places(request: HttpRequest, text: str) -> tuple[list[Place], int]:
    """What has this id; and where the list of accounts was cut, 0 = nowhere."""
    found = []
    if "/" not in text and User.objects.filter(username=text).exists():
        may = ability(request.user, "people")
        address = reverse("person-change", args=[text]) if may else reverse("people")
        found.append(_place(_("Person"), text, address))
    if not is_id(text):
        return found, 0
    for prefix, look in OWN_IDS.items():
        if text.startswith(prefix) and (place := look(text)):
            return [place], 0
    if place := delivery_place(text):
        return [place], 0
    requests = usage.find_requests(operation_id=text)
    found += [
        _place(_("Operation of %(a)s") % {"a": account}, text, _request(request_id))
        for request_id, account in requests.rows
    ]
    jobs = jobs_of_request(text) if is_migrated() else Found(())
    found += [
        _place(_("Job of %(a)s") % {"a": account}, text, reverse("job", args=[job_id]))
        for job_id, account in jobs.rows
    ]
    if Account.objects.filter(id=text).exists():
        found.append(_place(_("Account"), text, reverse("account", args=[text])))
    if Service.objects.filter(id=text).exists():
        found.append(_place(_("Service"), text, reverse("service", args=[text])))
    return found + delivery_places(text), requests.cut_at or jobs.cut_at


def _find_request(text: str) -> Place | None:
    row = Request.objects.filter(id=text).only("id").first()
    return _place(_("Request"), text, _request(row.id)) if row else None


def _find_ledger_row(text: str) -> Place | None:
    row = LedgerRow.objects.filter(id=text).only("request_id").first()
    return _place(_("Ledger row"), text, _request(row.request_id)) if row else None


def _find_audit_row(text: str) -> Place | None:
    row = AuditRow.objects.filter(id=text).only("id").first()
    return _place(_("Act"), text, reverse("act", args=[text])) if row else None


def _find_token(text: str) -> Place | None:
    row = Token.objects.filter(id=text).only("id").first()
    address = f"{reverse('audit')}?subject=token:{text}"
    return _place(_("Token"), text, address) if row else None


def _find_job(text: str) -> Place | None:
    """A job, or one of its tool calls: `<job>.<step>.<index>`."""
    if not is_migrated():
        return None
    if "." in text:
        return _find_call(text)
    row = Job.objects.filter(id=text).only("id").first()
    return _place(_("Job"), text, reverse("job", args=[text])) if row else None


def _find_call(text: str) -> Place | None:
    row = ToolCall.objects.filter(id=text).only("id").first()
    return _place(_("Tool call"), text, reverse("call", args=[text])) if row else None


def _find_approval(text: str) -> Place | None:
    row = Approval.objects.filter(id=text).only("id").first() if is_migrated() else None
    return _place(_("Approval"), text, reverse("approval", args=[text])) if row else None


def _find_invocation(text: str) -> Place | None:
    """A direct invocation leads to its call, or to the question about it."""
    if not is_migrated():
        return None
    if "." in text:
        return _find_call(text)
    call = ToolCall.objects.filter(job_id=text).only("id").order_by("step", "id").first()
    return _place(_("Invocation"), text, reverse("call", args=[call.id])) if call else None


OWN_IDS: dict[str, Callable[[str], Place | None]] = {
    "req_": _find_request,
    "led_": _find_ledger_row,
    "aud_": _find_audit_row,
    "tok_": _find_token,
    "job_": _find_job,
    "apr_": _find_approval,
    "inv_": _find_invocation,
}


def _request(request_id: str) -> str:
    return reverse("request", args=[request_id])


def _place(what: str, name: str, href: str) -> Place:
    return {"what": what, "name": name, "href": href}
