"""The sign-in page: Django's own, with failed tries counted per name and address."""

import hashlib
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters

from console.formats import duration_text
from kernel.conf import conf

ADDRESS_FACTOR = 10  # an office behind one address has this many people
_NAME_CHARS_MAX = 150  # Django's own limit of a user name


def client_address(request: HttpRequest) -> str:
    """The caller's address; what trusted proxies said of it is in already (console/proxies.py)."""
    return str(request.META.get("REMOTE_ADDR", ""))


class Throttle:
    """Tries of one (name, address), and of one address, in a fixed window; in Django's cache.

    A try counts before the password is looked at, so that tries at the same time all count; a right
    one is taken back.
    """

    def __init__(self, *, name: str, address: str):
        self._limits = {
            _key(name[:_NAME_CHARS_MAX].casefold(), address): conf.sign_in_tries_max,
            _key(address): conf.sign_in_tries_max * ADDRESS_FACTOR,
        }

    def may_try(self) -> bool:
        """Counts this try. False when one of the two limits was reached before."""
        counts = {key: _count(key) for key in self._limits}
        return all(counts[key] <= limit for key, limit in self._limits.items())

    def succeeded(self) -> None:
        """The name's tries are forgotten; the address's stay counted."""
        cache.delete(next(iter(self._limits)))


def _key(*fields: str) -> str:
    joined = "".join(f"{len(field)}:{field}" for field in fields)  # no two pairs give one text
    return f"sign-in:{hashlib.sha256(joined.encode('utf-8', 'replace')).hexdigest()}"


def _count(key: str) -> int:
    if cache.add(key, 1, timeout=conf.sign_in_window_seconds):
        return 1
    try:
        return int(cache.incr(key))
    except ValueError:  # the window ended between the two calls
        cache.add(key, 1, timeout=conf.sign_in_window_seconds)
        return 1


class SignInForm(AuthenticationForm):
    """Name and password. Never says which of the two was wrong."""

    error_messages = {
        "invalid_login": "",  # set in __init__, translated per request
        "inactive": "",
    }

    def __init__(self, request: HttpRequest | None = None, *args: Any, **kwargs: Any):
        super().__init__(request, *args, **kwargs)
        wrong = _("Name and password do not match. Both are case-sensitive.")
        self.error_messages = {"invalid_login": wrong, "inactive": wrong}
        self.throttled = False
        for name, complete in (("username", "username"), ("password", "current-password")):
            self.fields[name].widget.attrs |= {"class": "input", "autocomplete": complete}
        self.fields["username"].widget.attrs |= {"autocapitalize": "none", "spellcheck": "false"}

    def clean(self) -> dict[str, Any]:
        name = self.cleaned_data.get("username", "")
        address = client_address(self.request) if self.request is not None else ""
        throttle = Throttle(name=name, address=address)
        if not throttle.may_try():
            self.throttled = True
            raise ValidationError(
                _("Too many failed tries for this name from your address. Try again in %(wait)s.")
                % {"wait": duration_text(conf.sign_in_window_seconds)}
            )
        cleaned = super().clean()
        if self.user_cache is not None:
            throttle.succeeded()
        return cleaned


@method_decorator(sensitive_post_parameters("password"), name="dispatch")
class SignInView(LoginView):
    """GET: the form. POST signs in and goes to `next`; 422 wrong pair, 429 throttled."""

    template_name = "console/sign_in.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"ended": "ended" in self.request.GET}

    def form_invalid(self, form: SignInForm) -> HttpResponse:  # type: ignore[override]  # our form
        response = self.render_to_response(self.get_context_data(form=form))
        response.status_code = 429 if form.throttled else 422
        if form.throttled:
            response.headers["Retry-After"] = str(conf.sign_in_window_seconds)
        return response


sign_out = login_not_required(LogoutView.as_view())
"""POST ends the session; open to everybody, with or without a role."""
