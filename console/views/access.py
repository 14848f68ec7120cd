"""Tokens and people: who may act, with what."""

import secrets
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from console.access import needs
from console.acting import actor_of
from console.forms import ConsoleForm, IdTextField, NoteField
from console.responses import Screen
from console.views.form_page import FormPage, run_form
from kernel import access
from kernel.access.people import role_of
from kernel.errors import KernelError

SECRET_PAGE = "console/tokens/secret.html"


class TokenForm(ConsoleForm):
    """A new API token."""

    account_id = IdTextField(label=gettext_lazy("Account"))
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=120,
        help_text=gettext_lazy("Who or what will use it."),
    )
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("May"),
        choices=[(name, f"{name}: {what}") for name, what in access.SCOPES.items()],
        widget=forms.CheckboxSelectMultiple,
        initial=["usage:read", "usage:write"],
    )


class ReasonForm(ConsoleForm):
    """A confirmation with its reason."""

    reason = NoteField(label=gettext_lazy("Reason"), required=False)


class PersonForm(ConsoleForm):
    """A new person; the password is made here and shown once."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=150)
    role = forms.ChoiceField(
        label=gettext_lazy("Role"),
        choices=[(name, f"{name}: {what}") for name, what in access.ROLES.items()],
        widget=forms.RadioSelect,
    )


class ChangePersonForm(ConsoleForm):
    """A person's role, and whether they may sign in."""

    role = forms.ChoiceField(
        label=gettext_lazy("Role"),
        choices=[(name, f"{name}: {what}") for name, what in access.ROLES.items()],
        widget=forms.RadioSelect,
    )
    active = forms.BooleanField(label=gettext_lazy("May sign in"), required=False)
    reason = NoteField(label=gettext_lazy("Reason"), required=False)


@needs("view")
@require_GET
def tokens(request: HttpRequest) -> HttpResponse:
    """All tokens, newest first; never their secrets."""
    return Screen(request, "console/tokens/index.html", "console/tokens/_list.html").show(
        {"rows": access.list_tokens()}
    )


@needs("tokens")
def token_new(request: HttpRequest) -> HttpResponse:
    """Issue a token; its secret is on the answer, once, and nowhere else."""
    page = FormPage(
        title=_("New token"),
        submit=_("Issue the token"),
        back=reverse("tokens"),
        crumb=_("Tokens"),
        lead=_("The secret is shown once. Only its hash is stored."),
        permission="tokens",
    )
    form = TokenForm(request.POST or None, initial={"account_id": request.GET.get("account", "")})
    if request.method != "POST" or not form.is_valid():
        return run_form(request, page, form, _never)
    try:
        token, secret = access.issue_token(actor=actor_of(request), **form.cleaned_data)
    except KernelError as error:
        return run_form(request, page, form, _raiser(error))
    return _shown_once(request, page.back, token.name, secret, what=_("Token"))


@needs("tokens")
def token_revoke(request: HttpRequest, token_id: str) -> HttpResponse:
    """Revoke a token, after a confirmation."""
    page = FormPage(
        title=_("Revoke this token?"),
        submit=_("Revoke the token"),
        back=reverse("tokens"),
        crumb=_("Tokens"),
        lead=_("Whoever uses it is refused within seconds. This cannot be undone."),
        kind="danger",
        permission="tokens",
        facts=[(_("Token"), token_id)],
    )

    def act(data: dict[str, Any]) -> tuple[str, str]:
        access.revoke_token(token_id=token_id, actor=actor_of(request), reason=data["reason"])
        return page.back, _("Token revoked.")

    return run_form(request, page, ReasonForm(request.POST or None), act)


@needs("view")
@require_GET
def people(request: HttpRequest) -> HttpResponse:
    """All people with their roles."""
    rows = [{"user": user, "role": role_of(user)} for user in access.list_people()]
    return Screen(request, "console/people/index.html", "console/people/_list.html").show(
        {"rows": rows}
    )


@needs("people")
def person_new(request: HttpRequest) -> HttpResponse:
    """Add a person; the first password is shown once."""
    page = FormPage(
        title=_("New person"),
        submit=_("Add the person"),
        back=reverse("people"),
        crumb=_("People"),
        permission="people",
    )
    form = PersonForm(request.POST or None, initial={"role": "viewer"})
    if request.method != "POST" or not form.is_valid():
        return run_form(request, page, form, _never)
    password = secrets.token_urlsafe(15)
    try:
        user = access.add_person(actor=actor_of(request), password=password, **form.cleaned_data)
    except KernelError as error:
        return run_form(request, page, form, _raiser(error))
    return _shown_once(request, page.back, user.get_username(), password, what=_("First password"))


@needs("people")
def person_change(request: HttpRequest, name: str) -> HttpResponse:
    """Change a person's role, or close their access."""
    user = next((one for one in access.list_people() if one.get_username() == name), None)
    page = FormPage(
        title=_("Change %(name)s") % {"name": name},
        submit=_("Save the changes"),
        back=reverse("people"),
        crumb=_("People"),
        permission="people",
    )

    def act(data: dict[str, Any]) -> tuple[str, str]:
        access.change_person(name=name, actor=actor_of(request), **data)
        return page.back, _("Saved.")

    initial = {"role": role_of(user), "active": user.is_active} if user else {}
    return run_form(request, page, ChangePersonForm(request.POST or None, initial=initial), act)


def _never(data: dict[str, Any]) -> tuple[str, str]:
    raise AssertionError("a form that shows a secret acts before run_form")


def _raiser(error: KernelError) -> Any:
    def act(data: dict[str, Any]) -> tuple[str, str]:
        raise error

    return act


def _shown_once(
    request: HttpRequest, back: str, name: str, secret: str, *, what: str
) -> HttpResponse:
    response = render(
        request, SECRET_PAGE, {"back": back, "name": name, "secret": secret, "what": what}
    )
    if getattr(request, "htmx", None):
        response.headers["HX-Retarget"] = "#form"
    return response
