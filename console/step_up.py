"""'Confirm that it is you': before grave acts, unless it was proved in the last minutes (L2).

    @needs("tokens")
    @step_up(gettext_lazy("Issue a token"))
    def token_new(request): ...

A POST that comes too late is answered 403 with a form that names the act, carries everything the
person sent, asks for password, code or passkey, and goes to the same address again. When the proof
is right the act goes on as it was sent: note, decision, version and key of the form survive. Works
without script, and as a part where htmx asks.
"""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.template.loader import render_to_string
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from console import passkeys
from console.access import local_path
from console.formats import duration_text
from console.kept import KeptText, is_secret
from console.proofs import confirm, is_confirmed
from console.responses import wants_part
from console.throttle import Throttle, wait_text
from kernel import access
from kernel.access.factors import APP, CODES
from kernel.conf import conf

PASSWORD, CODE, CREDENTIAL = "step_up_password", "step_up_code", "step_up_credential"
PROOFS = frozenset({PASSWORD, CODE, CREDENTIAL})
TARGET = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")

View = Callable[..., HttpResponseBase]
# What the act is, in words; or what says it, called as the view is.
Doing = str | Promise | Callable[..., str]


def step_up(doing: Doing) -> Callable[[View], View]:
    """Ask for a proof before each POST of this view. `doing` names the act: 'Issue a token'."""

    def guard(view: View) -> View:
        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            def named() -> str:
                return doing(request, *args, **kwargs) if callable(doing) else str(doing)

            return asked(request, named) or view(request, *args, **kwargs)

        checked.is_stepped_up = True  # type: ignore[attr-defined]  # the matrix test reads it
        return checked

    return guard


def asked(request: HttpRequest, named: Callable[[], str]) -> HttpResponseBase | None:
    """None when the act may go on; else the answer that asks for a proof, or refuses a wrong one.

    `named` says the act in words, untrusted. For views that know only after a look at the row how
    grave the act is.
    """
    if request.method in ("GET", "HEAD", "OPTIONS") or is_confirmed(request):
        return None
    if not PROOFS & request.POST.keys():
        return _ask(request, named())
    error = _error_of(request)
    if error:
        return _ask(request, named(), error=error)
    confirm(request)
    return None


@sensitive_variables("password", "code")
def _error_of(request: HttpRequest) -> str:
    """'' when one proof is right. Wrong ones count as tries at signing in."""
    user: Any = request.user
    throttle = Throttle.of(request, name=user.get_username(), purpose="step-up")
    wait_seconds = throttle.wait_seconds()
    if wait_seconds:
        return _("Too many failed tries. Try again in %(wait)s.") % {
            "wait": wait_text(wait_seconds)
        }
    password, code = request.POST.get(PASSWORD, ""), request.POST.get(CODE, "").strip()
    is_right = (
        (bool(password) and user.check_password(password))
        or (bool(code) and bool(access.accept_code(user=user, code=code)))
        or (CREDENTIAL in request.POST and passkeys.is_right(user, request.POST[CREDENTIAL]))
    )
    if not is_right:
        return _("That does not match. Nothing was done yet.")
    throttle.succeeded()
    return ""


def _ask(request: HttpRequest, doing: str, *, error: str = "") -> HttpResponse:
    user: Any = request.user
    kinds = access.kinds_of(user=user)
    target = request.headers.get("HX-Target", "")
    referer = request.headers.get("HX-Current-URL") or request.headers.get("Referer", "/")
    part = wants_part(request) and bool(TARGET.match(target))
    carried = [
        (name, value)
        for name in request.POST
        if name not in PROOFS and name != "csrfmiddlewaretoken"
        for value in request.POST.getlist(name)
    ]
    context = {
        "doing": doing,
        "error": error,
        "action": request.get_full_path(),
        "target": f"#{target}" if part else "",
        "carried": carried,
        "typed": [
            KeptText(name, value)
            for name, value in carried
            if name in ("note", "reason") and value.strip() and not is_secret(name)
        ],
        "back": local_path(request, referer),
        "has_password": user.has_usable_password(),
        "has_codes": bool(kinds & {APP, CODES}),
        "challenge": passkeys.challenge_for(request, user, kinds),
        "minutes": duration_text(conf.step_up_seconds).removesuffix(" 00 s"),
    }
    name = "console/step_up/_form.html" if part else "console/step_up/index.html"
    body = render_to_string(name, context, request=request)
    return HttpResponse(body, status=403)
