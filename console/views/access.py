"""Tokens and people: who may act, with what."""

import secrets
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from console.access import needs
from console.acting import actor_of
from console.filters import Id, read_filters
from console.forms import ConsoleForm, IdTextField, NoteField
from console.migrated import needs_migration
from console.responses import Screen, form_version
from console.step_up import step_up
from console.views.form_page import Done, FormPage, Secret, run_form
from console.words import kind_of_factor as kind_text
from kernel import access
from kernel.access.people import person_version, role_of
from kernel.ids import is_id
from kernel.models import Token
from kernel.schema import SIGN_IN

PASSWORD_BYTES = 15
LISTED_MAX = 500  # the kernel lists no more tokens or people
TOKEN_FILTERS = (Id("account", gettext_lazy("Account")),)


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
    """The newest tokens, or those of one account; never their secrets."""
    chosen = read_filters(request.GET, TOKEN_FILTERS)
    rows = access.list_tokens(account_id=chosen.values.get("account", ""))
    return Screen(request, "console/tokens/index.html", "console/tokens/_list.html").show(
        {"rows": rows, "chosen": chosen, "most": LISTED_MAX if len(rows) >= LISTED_MAX else 0}
    )


def _issuing(request: HttpRequest) -> str:
    name, account = (request.POST.get(one, "") for one in ("name", "account_id"))
    return _("Issue the token “%(name)s” for account %(account)s") % {
        "name": name or "?",
        "account": account or "?",
    }


@needs("tokens")
@step_up(_issuing)
def token_new(request: HttpRequest) -> HttpResponse:
    """Issue a token; its secret is on the answer, once, and nowhere else."""
    page = FormPage(
        title=_("New token"),
        submit=_("Issue the token"),
        back=reverse("tokens"),
        crumb=_("Tokens"),
        lead=_("The secret is shown once. Only its hash is stored."),
        permission="tokens",
        repeat=_(
            "The token is issued; its secret was in the first answer only and cannot be shown"
            " again. If nobody copied it, revoke that token here and issue another with New token."
        ),
    )

    def act(data: dict[str, Any]) -> Secret:
        token, secret = access.issue_token(actor=actor_of(request), **data)
        return Secret(_("Token"), token.name, secret)

    form = TokenForm(request.POST or None, initial={"account_id": request.GET.get("account", "")})
    return run_form(request, page, form, act)


def _revoking(request: HttpRequest, token_id: str) -> str:
    row = Token.objects.filter(id=token_id).first() if is_id(token_id) else None
    return _("Revoke the token “%(name)s”") % {"name": row.name if row else token_id}


@needs("tokens")
@step_up(_revoking)
def token_revoke(request: HttpRequest, token_id: str) -> HttpResponse:
    """Revoke a token, after a confirmation that names it."""
    row = Token.objects.filter(id=token_id).first() if is_id(token_id) else None
    if row is None:
        raise Http404
    page = FormPage(
        title=_("Revoke this token?"),
        submit=_("Revoke the token"),
        back=reverse("tokens"),
        crumb=_("Tokens"),
        lead=_("Whoever uses it is refused within seconds. This cannot be undone."),
        kind="danger-fill",
        permission="tokens",
        subject=f"token:{row.id}",
        facts=[
            (_("Name"), row.name),
            (_("Begins with"), f"{row.prefix}…"),
            (_("Account"), row.account_id),
            (_("May"), row.scopes),
        ],
    )

    def act(data: dict[str, Any]) -> Done:
        now = access.revoke_token(token_id=row.id, actor=actor_of(request), reason=data["reason"])
        return Done(page.back, _("Token revoked.") if now else _("It was revoked already."))

    return run_form(request, page, ReasonForm(request.POST or None), act)


@needs("view")
@require_GET
def people(request: HttpRequest) -> HttpResponse:
    """People by name, with their roles."""
    found = access.list_people()
    proving = access.people_with_factors(user_ids=[user.pk for user in found])
    rows = [
        {"user": user, "role": role_of(user), "has_factor": user.pk in proving} for user in found
    ]
    return Screen(request, "console/people/index.html", "console/people/_list.html").show(
        {"rows": rows, "most": LISTED_MAX if len(rows) >= LISTED_MAX else 0}
    )


def _adding(request: HttpRequest) -> str:
    name, role = request.POST.get("name", ""), request.POST.get("role", "")
    return _("Add the person “%(name)s” as %(role)s") % {"name": name or "?", "role": role or "?"}


@needs("people")
@step_up(_adding)
def person_new(request: HttpRequest) -> HttpResponse:
    """Add a person; the first password is shown once."""
    page = FormPage(
        title=_("New person"),
        submit=_("Add the person"),
        back=reverse("people"),
        crumb=_("People"),
        lead=_("A first password is made for them and shown to you once."),
        permission="people",
        repeat=_(
            "The person is added; the first password was in the first answer only and cannot be"
            " shown again. If nobody copied it, make another with Password… in their row."
        ),
    )

    def act(data: dict[str, Any]) -> Secret:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        user = access.add_person(actor=actor_of(request), password=password, **data)
        return Secret(_("First password"), user.get_username(), password)

    form = PersonForm(request.POST or None, initial={"role": "viewer"})
    return run_form(request, page, form, act)


@needs("people")
@step_up(lambda request, name: _("Change the role or access of %(name)s") % {"name": name})
def person_change(request: HttpRequest, name: str) -> HttpResponse:
    """Change a person's role, or close their access."""
    user = _person(name)
    page = FormPage(
        title=_("Change %(name)s") % {"name": name},
        submit=_("Save the changes"),
        back=reverse("people"),
        crumb=_("People"),
        permission="people",
        subject=f"person:user-{user.pk}",
    )

    def act(data: dict[str, Any]) -> Done:
        access.change_person(
            name=name, actor=actor_of(request), version=form_version(request), **data
        )
        return Done(page.back, _("Saved."))

    initial = {"role": role_of(user), "active": user.is_active}
    form = ChangePersonForm(request.POST or None, initial=initial)
    return run_form(request, page, form, act, version=person_version(user=user))


@needs("people")
@step_up(lambda request, name: _("Make a new password for %(name)s") % {"name": name})
def person_password(request: HttpRequest, name: str) -> HttpResponse:
    """Replace a lost password by a fresh one, shown once; ends the person's sign-ins."""
    user = _person(name)
    page = FormPage(
        title=_("New password for %(name)s?") % {"name": name},
        submit=_("Make a new password"),
        back=reverse("people"),
        crumb=_("People"),
        lead=_("The old password ends at once, and so does every place where they are signed in."),
        permission="people",
        repeat=_(
            "The new password is in force; it was in the first answer only and cannot be shown"
            " again. If nobody copied it, make another with Password… in their row."
        ),
        subject=f"person:user-{user.pk}",
    )

    def act(data: dict[str, Any]) -> Secret:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        access.change_person(
            name=name,
            actor=actor_of(request),
            password=password,
            version=form_version(request),
            reason=data["reason"],
        )
        return Secret(_("New password"), name, password)

    form = ReasonForm(request.POST or None)
    return run_form(request, page, form, act, version=person_version(user=user))


@needs("people")
@needs_migration(SIGN_IN)
@step_up(lambda request, name: _("Remove all second factors of %(name)s") % {"name": name})
def person_factors(request: HttpRequest, name: str) -> HttpResponse:
    """Remove the second factors of somebody who lost them; they set up new ones themselves."""
    user = _person(name)
    kinds = access.kinds_of(user=user)
    page = FormPage(
        title=_("Reset the second factors of %(name)s?") % {"name": name},
        submit=_("Remove all of them"),
        back=reverse("people"),
        crumb=_("People"),
        lead=_(
            "Then their password alone signs them in, until they set up a factor again. Every place"
            " where they are signed in ends at once. Make sure that it is really they who ask."
        ),
        kind="danger-fill",
        permission="people",
        subject=f"person:user-{user.pk}",
        facts=[(_("Set up now"), ", ".join(kind_text(one) for one in sorted(kinds)) or _("none"))],
    )

    def act(data: dict[str, Any]) -> Done:
        access.reset_factors(name=name, actor=actor_of(request), reason=data["reason"])
        return Done(page.back, _("Their second factors are removed."))

    return run_form(request, page, ReasonForm(request.POST or None), act)


def _person(name: str) -> User:
    user = User.objects.filter(username=name).first()
    if user is None:
        raise Http404
    return user
