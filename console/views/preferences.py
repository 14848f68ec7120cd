"""Preferences: theme, shortcuts, zone; views of lists that the person named, renamed, deleted."""

from typing import Any
from urllib.parse import unquote_plus

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, QueryDict
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from console.access import local_path, needs
from console.filters import PAGE_NAMES
from console.forms import ConsoleForm
from console.migrated import is_migrated, needs_migration
from console.preferences import KEYS, THEMES, set_cookie, taste, zones
from console.responses import Screen, see_other
from console.views.form_page import Done, FormPage, run_form
from kernel.access.preferences import (
    NAME_CHARS_MAX,
    SavedView,
    choose_zone,
    delete_view,
    rename_view,
    save_view,
)
from kernel.errors import KernelError
from kernel.schema import PREFERENCES

# The lists with filters, by the name of their URL.
LISTS = {
    "requests": gettext_lazy("Requests"),
    "accounts": gettext_lazy("Accounts"),
    "approvals": gettext_lazy("Approvals"),
    "approvals-decided": gettext_lazy("Approvals, decided"),
    "approvals-expired": gettext_lazy("Approvals, expired"),
    "jobs": gettext_lazy("Jobs"),
    "operations": gettext_lazy("Operations"),
    "notifications": gettext_lazy("Notifications"),
    "dead-letters-list": gettext_lazy("Dead letters"),
    "tokens": gettext_lazy("Tokens"),
    "audit": gettext_lazy("Audit"),
}


class ViewForm(ConsoleForm):
    """The name of a view; the list and its filters are in the form's address."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=NAME_CHARS_MAX,
        help_text=gettext_lazy("You alone see it. The address of the list can be shared as it is."),
    )


@needs("view")
def preferences(request: HttpRequest) -> HttpResponse:
    """GET: all of it. POST theme, keys or zone (any): 303 back to the page; 400 on other values."""
    if request.method != "POST":
        return Screen(
            request, "console/preferences/index.html", "console/preferences/index.html"
        ).show({"views": _listed(request), "themes": THEMES, "may_save": is_migrated(PREFERENCES)})
    allowed = {"theme": frozenset(THEMES), "keys": frozenset(KEYS), "zone": zones() | {""}}
    chosen = {name: request.POST[name] for name in allowed if name in request.POST}
    if not chosen or any(value not in allowed[name] for name, value in chosen.items()):
        return HttpResponseBadRequest(_("theme, keys or zone"), content_type="text/plain")
    response = see_other(local_path(request, request.headers.get("Referer", "/")))
    if "zone" in chosen and is_migrated(PREFERENCES):
        choose_zone(person_id=_person(request), zone=chosen["zone"])
    for name, value in chosen.items():
        kept = f"{_person(request)}:{value}" if name == "zone" else value
        set_cookie(request, response, name, kept)
    return response


@needs("view")
@needs_migration(PREFERENCES)
def view_new(request: HttpRequest) -> HttpResponse:
    """?screen=…&query=…: name what a list shows. GET asks for the name, POST keeps it."""
    screen = request.GET.get("screen", "")
    if screen not in LISTS:
        raise BadRequest(_("This list keeps no views."))
    query = _filters_only(request.GET.get("query", ""))
    back = reverse(screen) + query
    page = FormPage(
        title=_("Save this view"),
        submit=_("Save the view"),
        back=back,
        crumb=LISTS[screen],
        permission="view",
        facts=[(_("Filters"), unquote_plus(query.removeprefix("?").replace("&", " · ")))],
    )

    def keep(cleaned: dict[str, Any]) -> Done:
        view = SavedView(screen, cleaned["name"], query)
        save_view(person_id=_person(request), view=view)
        return Done(to=back, message=_("View saved."))

    return run_form(request, page, ViewForm(request.POST or None), keep)


@needs("view")
@require_POST
@needs_migration(PREFERENCES)
def view_change(request: HttpRequest) -> HttpResponse:
    """POST screen and name, with `delete` or `new_name`: rename or forget one of one's views."""
    person, here = _person(request), reverse("preferences")
    screen, name = request.POST.get("screen", ""), request.POST.get("name", "")
    try:
        if "delete" in request.POST:
            delete_view(person_id=person, screen=screen, name=name)
            messages.success(request, _("View deleted."))
        else:
            new_name = request.POST.get("new_name", "")
            rename_view(person_id=person, screen=screen, name=name, new_name=new_name)
            messages.success(request, _("View renamed."))
    except KernelError as error:
        messages.error(request, f"{error.message[:1].upper()}{error.message[1:]}.")
    return see_other(here)


def _person(request: HttpRequest) -> int:
    """The signed-in person's id; the access check has let nobody else in."""
    assert request.user.pk is not None
    return request.user.pk


def _listed(request: HttpRequest) -> list[dict[str, Any]]:
    """The person's views by list; one whose list is gone can still be deleted."""
    order = {name: place for place, name in enumerate(LISTS)}
    views = sorted(taste(request).views, key=lambda one: order.get(one.screen, len(order)))
    return [
        {
            "view": one,
            "label": LISTS.get(one.screen, one.screen),
            "href": reverse(one.screen) + one.query if one.screen in LISTS else "",
        }
        for one in views
    ]


def _filters_only(text: str) -> str:
    """The filters of a query string in one spelling, without the position in the list."""
    chosen = QueryDict(text.removeprefix("?"), mutable=True)
    for name in list(chosen):
        if name in PAGE_NAMES or not str(chosen[name]).strip():
            del chosen[name]
    return f"?{chosen.urlencode()}" if chosen else ""
