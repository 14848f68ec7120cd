"""Error pages that say what happened and the way out: 400, 403, 404, 500, stale form (CSRF)."""

import logging
import sys
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse, HttpResponseServerError
from django.middleware.csrf import get_token
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from console.access import Denied
from console.acting import person_of
from console.filters import BadFilter
from console.kept import is_same_origin, is_secret, kept_texts
from console.responses import RETRY_SECONDS, wants_part
from kernel.access.people import record_refused_act
from kernel.errors import KernelError
from kernel.transactions import is_lost_connection

log = logging.getLogger(__name__)

OWN_FIELDS = frozenset({"form_key", "csrfmiddlewaretoken", "api_key_env"})


def _answer(
    request: HttpRequest,
    status: int,
    title: str,
    text: str,
    *,
    details: list[tuple[str, str]] | None = None,
    ways: list[tuple[str, str]] | None = None,
) -> HttpResponse:
    context = {
        "status": status,
        "title": title,
        "text": text,
        "details": details or [],
        "ways": ways or [("/", _("Home"))],
        "request_id": getattr(request, "request_id", ""),
    }
    name = "_problem" if wants_part(request) else "error"
    return render(request, f"console/errors/{name}.html", context, status=status)


@login_not_required
def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400. A bad filter is named, with a link to the list without it; never the unfiltered list."""
    if isinstance(exception, BadFilter):
        query = request.GET.copy()
        query.pop(exception.name, None)
        rest = f"{request.path}?{query.urlencode()}" if query else request.path
        return _answer(
            request,
            400,
            _("This filter does not work"),
            _("Nothing is shown, because showing everything instead would mislead."),
            details=[
                (_("Filter"), exception.name),
                (_("Value"), exception.value),
                (_("Problem"), exception.why),
            ],
            ways=[(rest, _("Without this filter")), ("/", _("Home"))],
        )
    return _answer(
        request,
        400,
        _("This request cannot be understood"),
        str(exception) or _("Nothing was done."),
    )


@login_not_required
def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403 with the reason: the missing permission and the roles that have it."""
    reason = exception.reason if isinstance(exception, Denied) else str(exception)
    if isinstance(exception, Denied) and request.method == "POST":
        _note(request, exception.permission)
    return _answer(request, 403, _("Not allowed"), reason or _("Your role does not allow this."))


def _note(request: HttpRequest, permission: str) -> None:
    """An act that was refused is in the trail; that it cannot be noted does not allow it."""
    try:
        actor = person_of(request)
        record_refused_act(actor=actor, permission=permission, address=request.path)
    except (DatabaseError, InterfaceError, KernelError) as error:
        log.warning("a refused act was not noted: %s", type(error).__name__)


@login_not_required
def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404."""
    return _answer(
        request,
        404,
        _("There is nothing here"),
        _("The address is wrong, or the object was never there. Ids are case-sensitive."),
    )


@login_not_required
def server_error(request: HttpRequest) -> HttpResponse:
    """500, or 503 while the database is away. Needs neither database nor context processors."""
    error = sys.exc_info()[1]
    away = isinstance(error, DatabaseError | InterfaceError) and is_lost_connection(error)
    context = {"request_id": getattr(request, "request_id", ""), "away": away}
    body = render_to_string("console/errors/500.html", context)
    if not away or request.headers.get("HX-Request"):  # a part that fails stays as it is
        return HttpResponseServerError(body)
    return HttpResponse(body, status=503, headers={"Retry-After": str(RETRY_SECONDS)})


@login_not_required
def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403 for a stale token. Our form keeps its texts and may be sent again; a foreign one may not.

    With htmx the form stays where it is: the answer swaps nothing and hands over a fresh token.
    """
    secret = any(is_secret(name) and name not in OWN_FIELDS for name in request.POST)
    ours = is_same_origin(request) and request.user.is_authenticated and not secret
    if ours and wants_part(request):
        body = render_to_string(
            "console/errors/_stale.html", {"token": get_token(request)}, request=request
        )
        return HttpResponse(body, status=403, headers={"HX-Reswap": "none"})
    context: dict[str, Any] = {"kept": kept_texts(request), "may_repeat": ours}
    if ours:
        shown = {one.name for one in context["kept"]}
        context["repeat_address"] = request.get_full_path()
        context["hidden"] = [
            (name, value)
            for name in request.POST
            for value in request.POST.getlist(name)
            if name != "csrfmiddlewaretoken" and name not in shown
        ]
    return render(request, "console/errors/csrf.html", context, status=403)
