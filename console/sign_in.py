"""The sign-in pages: name and password, then a second factor where the person has one."""

from typing import Any

from allauth.account.internal.flows.login import record_authentication
from allauth.account.internal.stagekit import clear_login
from allauth.account.stages import LoginStageController
from allauth.account.utils import perform_login
from django import forms
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters

from console.passkeys import challenge_for, is_right
from console.proofs import prove_factor
from console.throttle import Throttle, wait_text
from kernel import access

FACTOR_STAGE = "mfa_authenticate"  # allauth's name of the second step
CODE_CHARS_MAX = 40


def _too_many(wait_seconds: int) -> ValidationError:
    wait = {"wait": wait_text(wait_seconds)}
    return ValidationError(
        _("Too many failed tries for this name from your address. Try again in %(wait)s.") % wait
    )


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
        self.wait_seconds = 0
        for name, complete in (("username", "username"), ("password", "current-password")):
            self.fields[name].widget.attrs |= {"class": "input", "autocomplete": complete}
        self.fields["username"].widget.attrs |= {"autocapitalize": "none", "spellcheck": "false"}

    def clean(self) -> dict[str, Any]:
        assert self.request is not None, "the view gives it"
        throttle = Throttle.of(self.request, name=self.cleaned_data.get("username", ""))
        self.wait_seconds = throttle.wait_seconds()
        if self.wait_seconds:
            raise _too_many(self.wait_seconds)
        cleaned = super().clean()
        if self.user_cache is not None:
            # Some collations find `olga` for `ólga`: tries at spellings would be counted apart.
            if self.user_cache.get_username() != self.cleaned_data["username"]:
                raise self.get_invalid_login_error()
            throttle.succeeded()
        return cleaned


def _refused(response: HttpResponse, wait_seconds: int) -> HttpResponse:
    """422 for a wrong answer; 429 with the seconds to wait when there were too many."""
    response.status_code = 429 if wait_seconds else 422
    if wait_seconds:
        response.headers["Retry-After"] = str(wait_seconds)
    return response


@method_decorator(sensitive_post_parameters("password"), name="dispatch")
class SignInView(LoginView):
    """GET: the form. POST goes to `next`, or to the second step; 422 wrong pair, 429 throttled."""

    template_name = "console/sign_in.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        more = {"ended": "ended" in self.request.GET, "oidc": settings.OIDC}
        return super().get_context_data(**kwargs) | more

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        clear_login(self.request)  # what another try began
        record_authentication(self.request, user, "password")
        response: HttpResponse = perform_login(
            self.request, user, redirect_url=self.get_success_url()
        )
        return response

    def form_invalid(self, form: SignInForm) -> HttpResponse:  # type: ignore[override]  # our form
        response = self.render_to_response(self.get_context_data(form=form))
        return _refused(response, form.wait_seconds)


class FactorForm(forms.Form):
    """A code of the app or a recovery code."""

    code = forms.CharField(
        label=gettext_lazy("Code"),
        max_length=CODE_CHARS_MAX,
        help_text=gettext_lazy("6 digits from your authenticator app, or a recovery code."),
        widget=forms.TextInput(
            attrs={
                "class": "input mono",
                "autocomplete": "one-time-code",
                "inputmode": "numeric",
                "autofocus": True,
            }
        ),
    )


@login_not_required
@sensitive_post_parameters("code", "credential")
def second_factor(request: HttpRequest) -> HttpResponse:
    """After the password: a code or a passkey. 422 wrong, 429 too many; else on to `next`."""
    stage = None
    if not request.user.is_authenticated:
        stage = LoginStageController.enter(request, FACTOR_STAGE)
    if stage is None:  # signed in already, waited too long, or never gave a password
        return redirect("home")
    user = stage.login.user
    kinds = access.kinds_of(user=user)
    if not kinds & {access.APP, access.PASSKEY}:  # removed meanwhile, in another tab or by an admin
        clear_login(request)
        return redirect(f"{resolve_url('sign-in')}?ended=1")
    form = FactorForm(request.POST or None)
    if "credential" in request.POST:
        form = FactorForm()
    wait_seconds, error = 0, ""
    if request.method == "POST":
        throttle = Throttle.of(request, name=user.get_username(), purpose="factor")
        wait_seconds = throttle.wait_seconds()
        if wait_seconds:
            error = " ".join(_too_many(wait_seconds).messages)
        elif _proved(request, user, form):
            throttle.succeeded()
            record_authentication(request, user, "mfa")
            response: HttpResponse = stage.exit()
            prove_factor(request)
            return response
        else:
            error = _("That code or passkey is not right, or it was used already.")
    context = {
        "form": form,
        "error": error,
        "challenge": challenge_for(request, user, kinds),
        "has_codes": bool(kinds - {access.PASSKEY}),
        "has_passkey": access.PASSKEY in kinds,
    }
    response = render(request, "console/sign_in/factor.html", context)
    return _refused(response, wait_seconds) if error else response


def _proved(request: HttpRequest, user: Any, form: FactorForm) -> bool:
    if "credential" in request.POST:
        return is_right(user, request.POST["credential"])
    return form.is_valid() and bool(access.accept_code(user=user, code=form.cleaned_data["code"]))


sign_out = login_not_required(LogoutView.as_view())
"""POST ends the session; open to everybody, with or without a role."""
