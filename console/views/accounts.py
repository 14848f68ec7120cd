"""Accounts: who pays, what they consumed and hold, their ledger."""

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from console.access import needs
from console.acting import actor_of
from console.filters import Chosen, read_filters
from console.forms import ConsoleForm, IdTextField, MultiplierField, NoteField, UsdField
from console.paging import Cursor
from console.queries.accounts import FILTERS, PAGED_FILTERS, account_page, ledger_page
from console.queries.audit import acts_on
from console.responses import Screen, form_version
from console.views.form_page import Done, FormPage, run_form
from console.views.trends import spend_chart
from console.words import act_text
from kernel import usage
from kernel.conf import conf
from kernel.errors import NotFound
from kernel.ids import is_id
from kernel.money import format_multiplier

ACTS_SHOWN = 10


class AccountForm(ConsoleForm):
    """An account's settings."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=120)
    cap_nano = UsdField(
        label=gettext_lazy("Cap in USD"),
        required=False,
        help_text=gettext_lazy("Admission stops at this amount. Empty: no cap."),
    )
    multiplier_millionths = MultiplierField(
        label=gettext_lazy("Multiplier"),
        help_text=gettext_lazy("Applies to requests admitted from now on."),
    )
    allow_unpriced = forms.BooleanField(
        label=gettext_lazy("Admit requests that have no price yet"), required=False
    )
    active = forms.BooleanField(label=gettext_lazy("Open for new requests"), required=False)
    reason = NoteField(label=gettext_lazy("Reason"), required=False)


class NewAccountForm(AccountForm):
    """A new account: its id never changes."""

    account_id = IdTextField(label=gettext_lazy("Id"), help_text=gettext_lazy("Never changes."))
    field_order = ("account_id",)
    active = None  # type: ignore[assignment]  # a new account is open
    reason = None  # type: ignore[assignment]  # creating it is reason enough


@needs("view")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """All accounts by id."""
    paged = read_filters(request.GET, PAGED_FILTERS)
    rows, more = account_page(paged, conf.list_page_rows)
    values = {name: value for name, value in paged.values.items() if name != "from"}
    chosen = Chosen(FILTERS, values)
    return Screen(request, "console/accounts/index.html", "console/accounts/_list.html").show(
        {
            "rows": rows,
            "chosen": chosen,
            "first": (chosen.query() or "?") if "from" in paged.values else "",
            "next": chosen.query(**{"from": rows[-1].id}) if more else "",
        }
    )


@needs("view")
@require_GET
def detail(request: HttpRequest, account_id: str) -> HttpResponse:
    """One account with a page of its ledger."""
    chosen = read_filters(request.GET, ())
    summary = _summary(account_id)
    cursor = Cursor.read(request.GET)
    found = ledger_page(account_id, cursor)
    account = summary.account
    spent = account.consumed_nano + account.held_nano
    return Screen(request, "console/accounts/detail.html", "console/accounts/_ledger.html").show(
        {
            "account": account,
            "summary": summary,
            "spend": spend_chart(account.id) if cursor is None else None,
            "rows": found.rows,
            "page": found.page,
            "chosen": chosen,
            "is_later": cursor is not None,
            "acts": [
                {"row": act, "text": act_text(act.action)}
                for act in acts_on(f"account:{account.id}", count=ACTS_SHOWN)
            ],
            "left_nano": None if account.cap_nano is None else max(account.cap_nano - spent, 0),
            "multiplier": format_multiplier(account.multiplier_millionths),
        }
    )


@needs("configure")
def create(request: HttpRequest) -> HttpResponse:
    """A new account."""
    page = FormPage(
        title=_("New account"),
        submit=_("Create the account"),
        back=reverse("accounts"),
        crumb=_("Accounts"),
        lead=_("An account pays for the requests of its tokens."),
    )

    def act(data: dict[str, Any]) -> Done:
        row = usage.create_account(actor=actor_of(request), **data)
        message = _("Account %(id)s created.") % {"id": row.id}
        return Done(reverse("account", args=[row.id]), message)

    form = NewAccountForm(request.POST or None, initial={"multiplier_millionths": "1"})
    return run_form(request, page, form, act)


@needs("configure")
def change(request: HttpRequest, account_id: str) -> HttpResponse:
    """Change an account's settings."""
    row = _summary(account_id).account
    page = FormPage(
        title=_("Change account %(id)s") % {"id": row.id},
        submit=_("Save the changes"),
        back=reverse("account", args=[row.id]),
        crumb=row.id,
        lead=_("Requests that are admitted already keep their multiplier and price."),
        subject=f"account:{row.id}",
    )

    def act(data: dict[str, Any]) -> Done:
        usage.change_account(
            account_id=row.id, version=form_version(request), actor=actor_of(request), **data
        )
        return Done(page.back, _("Saved."))

    initial = {name: getattr(row, name) for name in AccountForm.base_fields if hasattr(row, name)}
    form = AccountForm(request.POST or None, initial=initial)
    return run_form(request, page, form, act, version=row.version)


def _summary(account_id: str) -> usage.AccountSummary:
    if not is_id(account_id):
        raise Http404
    try:
        return usage.account_summary(account_id=account_id)
    except NotFound:
        raise Http404 from None
