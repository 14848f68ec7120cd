"""Your account: one's own password, second factors, and the places where one is signed in."""

import base64
from typing import Any

from allauth.mfa.adapter import get_adapter
from allauth.mfa.totp.internal.auth import generate_totp_secret, validate_totp_code
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_POST

from console import passkeys
from console.access import needs
from console.acting import actor_of, earlier_act, refused, told_again
from console.forms import ConsoleForm
from console.migrated import needs_migration
from console.proofs import prove_factor
from console.responses import Screen, see_other
from console.step_up import step_up
from console.throttle import Throttle, wait_text
from console.views.form_page import Done, FormPage, run_form
from kernel import access
from kernel.errors import InvalidInput, KernelError, NotFound
from kernel.schema import SIGN_IN

APP_SECRET = "totp_secret"  # session key: the secret that a QR code showed and no code proved yet
APP_PAGE, APP_PART = "console/you/app.html", "console/you/_app.html"
PASSKEY_PAGE, PASSKEY_PART = "console/you/passkey.html", "console/you/_passkey.html"
CODES_PAGE, CODES_PART = "console/you/codes.html", "console/you/_codes.html"


class PasswordForm(ConsoleForm):
    """The old password and the new one, twice."""

    password = forms.CharField(
        label=gettext_lazy("Password now"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    new_password = forms.CharField(
        label=gettext_lazy("New password"),
        strip=False,
        help_text=gettext_lazy("At least 8 characters, not a common one."),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    again_password = forms.CharField(
        label=gettext_lazy("New password again"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        new = data.get("new_password")
        if new and data.get("again_password") and data["again_password"] != new:
            self.add_error("again_password", _("The two do not match."))
        return data


class AppForm(ConsoleForm):
    """A code that proves that the app holds the secret."""

    code = forms.CharField(
        label=gettext_lazy("Code that the app shows"),
        max_length=20,
        widget=forms.TextInput(
            attrs={"autocomplete": "one-time-code", "inputmode": "numeric", "class": "input mono"}
        ),
    )


class PasskeyForm(ConsoleForm):
    """A name for a passkey; the browser adds the rest."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=60,
        help_text=gettext_lazy("To tell it from others: 'phone', 'blue key'."),
    )


class NothingForm(ConsoleForm):
    """A confirmation without fields."""


@needs("view")
@needs_migration(SIGN_IN)
@require_GET
def you(request: HttpRequest) -> HttpResponse:
    """Everything about one's own access. Constant queries."""
    user = _me(request)
    factors = access.list_factors(user=user)
    codes = next((one for one in factors if one.kind == access.CODES), None)
    context = {
        "factors": [one for one in factors if one.kind != access.CODES],
        "codes": codes,
        "has_app": any(one.kind == access.APP for one in factors),
        "must_have": access.must_have_factor(user=user),
        "passkeys_work": passkeys.work_at(request),
        "sign_ins": access.list_sign_ins(user=user, current_key=request.session.session_key),
        "has_password": user.has_usable_password(),
        "oidc": settings.OIDC,
        "identity": access.identity_of(user=user) if settings.OIDC else "",
    }
    return Screen(request, "console/you/index.html", "console/you/_account.html").show(context)


@needs("view")
@needs_migration(SIGN_IN)
@sensitive_post_parameters()
def password(request: HttpRequest) -> HttpResponse:
    """Change one's own password; other places where one is signed in end with the old one."""
    user = _me(request)
    page = FormPage(
        title=_("Change your password"),
        submit=_("Change the password"),
        back=reverse("you"),
        crumb=_("Your account"),
        lead=_("Every other place where you are signed in ends at once."),
        permission="view",
    )

    def act(data: dict[str, Any]) -> Done:
        throttle = Throttle.of(request, name=user.get_username(), purpose="own-password")
        wait_seconds = throttle.wait_seconds()
        if wait_seconds or not user.check_password(data["password"]):
            text = _("too many tries: try again in %(wait)s") % {"wait": wait_text(wait_seconds)}
            wrong = text if wait_seconds else _("this is not your password")
            raise InvalidInput(wrong, field="password")
        throttle.succeeded()
        try:
            row = access.change_own_password(
                user=user, password=data["new_password"], actor=actor_of(request)
            )
        except InvalidInput as error:
            error.details["field"] = "new_password"
            raise
        update_session_auth_hash(request, row)
        return Done(page.back, _("Your password is changed."))

    return run_form(request, page, PasswordForm(request.POST or None), act)


@needs("view")
@needs_migration(SIGN_IN)
@step_up(gettext_lazy("Set up an authenticator app"))
@sensitive_post_parameters("code")
def app_new(request: HttpRequest) -> HttpResponse:
    """Set up an authenticator app: GET shows its secret, POST proves it with a code."""
    user = _me(request)
    screen = Screen(request, APP_PAGE, APP_PART)
    earlier = earlier_act(request)
    if earlier is not None:
        return told_again(request, screen, earlier, back=reverse("you"), repeat=_codes_were_shown())
    if request.method != "POST" or APP_SECRET not in request.session:
        request.session[APP_SECRET] = generate_totp_secret()
    secret = request.session[APP_SECRET]
    form = AppForm(request.POST or None)
    quads = [secret[start : start + 4] for start in range(0, len(secret), 4)]
    context = {
        "form": form,
        "secret": secret,
        "quads": quads,
        "picture": _qr_code(user, secret),
    }
    if request.method != "POST":
        return screen.show(context)
    if form.is_valid() and not validate_totp_code(secret, form.cleaned_data["code"]):
        form.add_error("code", _("Not the code of this moment. Is the phone's clock right?"))
    if not form.is_valid():
        return screen.invalid(context)
    try:
        codes = access.add_app(user=user, secret=secret, actor=actor_of(request))
    except KernelError as error:
        return refused(request, screen, error, context, form=form, back=reverse("you"))
    access.is_repeated(user=user, code=form.cleaned_data["code"])
    del request.session[APP_SECRET]
    prove_factor(request)
    return _with_codes(request, codes, _("The authenticator app is set up."))


@needs("view")
@needs_migration(SIGN_IN)
@step_up(gettext_lazy("Add a passkey"))
def passkey_new(request: HttpRequest) -> HttpResponse:
    """Add a passkey: GET invites the browser to make one, POST keeps it. Needs a script."""
    user = _me(request)
    screen = Screen(request, PASSKEY_PAGE, PASSKEY_PART)
    form = PasskeyForm(request.POST or None, initial={"name": _("Passkey")})
    works = passkeys.work_at(request)
    context = {"form": form, "works": works, "host": request.get_host()}
    earlier = earlier_act(request)
    if earlier is not None:
        return told_again(request, screen, earlier, back=reverse("you"), repeat=_codes_were_shown())
    if request.method != "POST" or not works:
        return screen.show(context | {"challenge": passkeys.invitation(user) if works else None})
    credential = passkeys.registered(request.POST.get("credential", ""))
    again = context | {"challenge": passkeys.invitation(user)}
    if credential is None:
        form.add_error(None, _("The browser made no passkey that this page asked for. Try again."))
    if credential is None or not form.is_valid():
        return screen.invalid(again)
    try:
        codes = access.add_passkey(
            user=user,
            name=form.cleaned_data["name"],
            credential=credential,
            actor=actor_of(request),
        )
    except KernelError as error:
        return refused(request, screen, error, again, form=form, back=reverse("you"))
    prove_factor(request)
    return _with_codes(request, codes, _("The passkey is added."))


@needs("view")
@needs_migration(SIGN_IN)
@step_up(gettext_lazy("Remove a second factor of yours"))
def factor_remove(request: HttpRequest, factor_id: int) -> HttpResponse:
    """Remove one of one's own factors, after a confirmation that names it."""
    user = _me(request)
    factors = access.list_factors(user=user)
    found = next((f for f in factors if f.id == factor_id and f.kind != access.CODES), None)
    if found is None:
        raise Http404
    kind = _("Authenticator app") if found.kind == access.APP else _("Passkey")
    page = FormPage(
        title=_("Remove this second factor?"),
        submit=_("Remove it"),
        back=reverse("you"),
        crumb=_("Your account"),
        lead=_("With the last one your recovery codes go, too."),
        kind="danger-fill",
        permission="view",
        facts=[(_("Factor"), kind), *(((_("Name"), found.name),) if found.name else ())],
    )

    def act(data: dict[str, Any]) -> Done:
        access.remove_factor(user=user, factor_id=found.id, actor=actor_of(request))
        return Done(page.back, _("Removed."))

    return run_form(request, page, NothingForm(request.POST or None), act)


@needs("view")
@needs_migration(SIGN_IN)
@step_up(gettext_lazy("Make new recovery codes for yourself"))
def codes_new(request: HttpRequest) -> HttpResponse:
    """Make fresh recovery codes, after a confirmation; the old ones end."""
    user = _me(request)
    page = FormPage(
        title=_("Make new recovery codes?"),
        submit=_("Make new codes"),
        back=reverse("you"),
        crumb=_("Your account"),
        lead=_("The codes you have now stop working. The new ones are shown once."),
        permission="view",
        repeat=_(
            "The new codes are in force; they were in the first answer only and cannot be shown"
            " again. If you did not keep them, make others with New codes…"
        ),
    )
    made: list[str] = []

    def act(data: dict[str, Any]) -> Done:
        made.extend(access.renew_recovery_codes(user=user, actor=actor_of(request)))
        return Done(page.back, "")

    answer = run_form(request, page, NothingForm(request.POST or None), act)
    return _with_codes(request, made, "") if made else answer


@needs("view")
@needs_migration(SIGN_IN)
@require_POST
def sign_in_end(request: HttpRequest, sign_in_id: str) -> HttpResponse:
    """End one of one's own sign-ins."""
    try:
        access.end_sign_in(user=_me(request), sign_in_id=sign_in_id, actor=actor_of(request))
    except NotFound:
        raise Http404 from None
    messages.success(request, _("Ended. Whoever uses it must sign in again."))
    return see_other(reverse("you"))


@needs("view")
@needs_migration(SIGN_IN)
@require_POST
def sign_ins_end(request: HttpRequest) -> HttpResponse:
    """End all of one's sign-ins but this one."""
    key = request.session.session_key
    ended = access.end_other_sign_ins(user=_me(request), current_key=key, actor=actor_of(request))
    messages.success(request, _("Ended elsewhere: %(n)s.") % {"n": ended})
    return see_other(reverse("you"))


def _me(request: HttpRequest) -> User:
    return User.objects.get(username=request.user.get_username())


def _codes_were_shown() -> str:
    return _(
        "If recovery codes were made with it, they were in the first answer only. If you did not"
        " keep them, make others with New codes…"
    )


def _qr_code(user: User, secret: str) -> str:
    adapter = get_adapter()
    svg = adapter.build_totp_svg(adapter.build_totp_url(user, secret))
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _with_codes(request: HttpRequest, codes: list[str], message: str) -> HttpResponse:
    """Recovery codes are shown on this answer only; without new ones, back to the account."""
    screen = Screen(request, CODES_PAGE, CODES_PART)
    if not codes:
        return screen.done(to=reverse("you"), message=message)
    return screen.show({"codes": codes, "text": "\n".join(codes), "message": message})
