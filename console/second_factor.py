"""Roles that must have a second factor (BAILING_MFA_ROLES): until then nothing else is open."""

from typing import Any

from django.contrib import messages
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, resolve_url
from django.utils.translation import gettext as _

from console.proofs import has_proved_factor
from kernel import access

# Where somebody without the factor that their role asks for may go.
OPEN_NAMES = frozenset(
    {"you", "you-app", "you-passkey", "you-password", "you-sign-in-end", "you-sign-ins-end"}
    | {"preferences", "sign-out"}
)


def missing_factor(request: HttpRequest, name: str) -> HttpResponseBase | None:
    """None, or the way on for a person whose role needs a factor that this session did not prove.

    To Your account where none is set up; who has one signs in again, with it. A proof counts while
    there is a factor. No query where no role needs one.
    """
    user: Any = request.user
    if not access.must_have_factor(user=user):
        return None
    if access.has_factor(user=user):
        if has_proved_factor(request):
            return None
        logout(request)
        address = f"{resolve_url('sign-in')}?ended=1"
    elif name in OPEN_NAMES:
        return None
    else:
        messages.warning(request, _("Your role needs a second factor. Set one up to go on."))
        address = resolve_url("you")
    if request.headers.get("HX-Request") == "true":
        return HttpResponse(status=401, headers={"HX-Redirect": address})
    return redirect(address)
