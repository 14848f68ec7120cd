"""Services and prices: what callers may name, and what it costs."""

import json
import os
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from console.access import needs
from console.acting import actor_of
from console.forms import ConsoleForm, IdTextField, NoteField
from console.queries.actors import who_of
from console.queries.audit import acts_on
from console.responses import Screen, form_version
from console.views.form_page import Done, FormPage, run_form
from console.views.service_lacks import lacks_of
from console.words import Rates, act_text, rates_of
from kernel import clock, usage
from kernel.errors import InvalidInput, NotFound
from kernel.ids import is_id
from kernel.models import Service
from kernel.usage.pricing import PriceSnapshot
from kernel.usage.rates import to_plain

ACTS_SHOWN = 20
UNITS = ("input", "input_cached", "input_cache_write", "output")


def _valid_from() -> str:
    return _("Valid from (%(zone)s)") % {"zone": timezone.get_current_timezone_name()}


class ServiceForm(ConsoleForm):
    """A provider route."""

    base_url = forms.CharField(
        label=gettext_lazy("Base address"),
        max_length=500,
        help_text=gettext_lazy("For example https://api.openai.com/v1"),
    )
    model = forms.CharField(label=gettext_lazy("Provider's model"), max_length=200)
    api_key_env = forms.CharField(
        label=gettext_lazy("Key variable"),
        max_length=120,
        required=False,
        help_text=gettext_lazy("Name of an environment variable, never the key itself."),
    )
    price = forms.CharField(
        label=gettext_lazy("Price"),
        max_length=320,
        required=False,
        help_text=gettext_lazy("provider/model, for example openai/gpt-4o"),
    )
    account_id = forms.CharField(
        label=gettext_lazy("Only for account"), max_length=128, required=False
    )
    max_output_tokens = forms.IntegerField(
        label=gettext_lazy("Maximum output tokens"), required=False, min_value=1
    )
    allow_private = forms.BooleanField(
        label=gettext_lazy("Allow a loopback or private address"), required=False
    )

    def values(self) -> dict[str, Any]:
        """The fields as the kernel names them."""
        data = dict(self.cleaned_data)
        provider, _slash, model = data.pop("price").partition("/")
        data.pop("service_id", None)
        data.pop("reason", None)
        return {**data, "price_provider": provider, "price_model": model}

    def clean_price(self) -> str:
        text = str(self.cleaned_data["price"]).strip()
        if text and not all(part for part in text.partition("/")):
            raise forms.ValidationError(_("Write it as provider/model."))
        return text


class NewServiceForm(ServiceForm):
    """A new service: its id is what callers send as `model`."""

    service_id = IdTextField(
        label=gettext_lazy("Id"), help_text=gettext_lazy("What callers send as model.")
    )
    field_order = ("service_id",)


class ChangeServiceForm(ServiceForm):
    """A service's route; open or retired."""

    active = forms.BooleanField(label=gettext_lazy("Open for new requests"), required=False)
    reason = NoteField(label=gettext_lazy("Reason"), required=False)


class PriceForm(ConsoleForm):
    """A new version of an operator price. Rates are in USD per million tokens."""

    provider = forms.CharField(label=gettext_lazy("Provider"), max_length=120)
    model = forms.CharField(label=gettext_lazy("Model"), max_length=200)
    input = forms.CharField(label=gettext_lazy("Input, USD per million"), max_length=24)
    output = forms.CharField(label=gettext_lazy("Output, USD per million"), max_length=24)
    input_cached = forms.CharField(
        label=gettext_lazy("Cached input, USD per million"), max_length=24, required=False
    )
    input_cache_write = forms.CharField(
        label=gettext_lazy("Cache write, USD per million"), max_length=24, required=False
    )
    valid_from_at = forms.DateTimeField(
        label=lazy(_valid_from, str)(),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=gettext_lazy(
            "Empty: from now on. An earlier time prices older requests that wait."
        ),
    )
    confirm = forms.BooleanField(
        label=gettext_lazy("These rates are unusual, and right"), required=False
    )
    reason = NoteField(label=gettext_lazy("Reason"), required=False)


@needs("view")
@require_GET
def services(request: HttpRequest) -> HttpResponse:
    """All services by id."""
    return Screen(request, "console/services/index.html", "console/services/_list.html").show(
        {"rows": usage.list_services()}
    )


@needs("view")
@require_GET
def service(request: HttpRequest, service_id: str) -> HttpResponse:
    """One service: its route, its price now, who changed it."""
    row = _service(service_id)
    price = usage.prices_in_force(services=[row], at=clock.now())[row.id]
    acts = acts_on(f"service:{row.id}", count=ACTS_SHOWN)
    return render(
        request,
        "console/services/detail.html",
        {
            "row": row,
            "price": price,
            "rates": _rates(price),
            "lacks": lacks_of(row, price, environ=os.environ),
            "acts": [{"row": act, "text": act_text(act.action)} for act in acts],
        },
    )


@needs("configure")
def service_new(request: HttpRequest) -> HttpResponse:
    """A new service."""
    page = FormPage(
        title=_("New service"),
        submit=_("Add the service"),
        back=reverse("services"),
        crumb=_("Services"),
        lead=_("A service is one provider route that callers name as model."),
    )
    form = NewServiceForm(request.POST or None)

    def act(data: dict[str, Any]) -> Done:
        row = usage.add_service(
            service_id=data["service_id"], actor=actor_of(request), **form.values()
        )
        back = reverse("service", args=[row.id])  # which says what it still lacks
        return Done(back, _("Service %(id)s added.") % {"id": row.id})

    return run_form(request, page, form, act)


@needs("configure")
def service_change(request: HttpRequest, service_id: str) -> HttpResponse:
    """Change or retire a service."""
    row = _service(service_id)
    page = FormPage(
        title=_("Change service %(id)s") % {"id": row.id},
        submit=_("Save the changes"),
        back=reverse("service", args=[row.id]),
        crumb=row.id,
        lead=_("Requests that were admitted and not sent yet are not sent on a changed route."),
        subject=f"service:{row.id}",
    )
    price = f"{row.price_provider}/{row.price_model}" if row.price_provider else ""
    initial = {
        name: getattr(row, name) for name in ChangeServiceForm.base_fields if hasattr(row, name)
    }
    form = ChangeServiceForm(request.POST or None, initial={**initial, "price": price})

    def act(data: dict[str, Any]) -> Done:
        usage.change_service(
            service_id=row.id,
            version=form_version(request),
            actor=actor_of(request),
            reason=data["reason"],
            **form.values(),
        )
        return Done(page.back, _("Saved."))

    return run_form(request, page, form, act, version=row.version)


@needs("view")
@require_GET
def prices(request: HttpRequest) -> HttpResponse:
    """Operator prices, newest first, and the price each service has now."""
    active = [row for row in usage.list_services() if row.active]
    in_force = usage.prices_in_force(services=active, at=clock.now())
    found = usage.list_prices()
    known = who_of({row.created_by for row in found})
    return Screen(request, "console/prices/index.html", "console/prices/_list.html").show(
        {
            "rows": [
                {
                    "price": row,
                    "rates": rates_of(json.loads(row.rates_text)),
                    "by": known[row.created_by],
                }
                for row in found
            ],
            "services": [
                {"service": row, "price": in_force[row.id], "rates": _rates(in_force[row.id])}
                for row in active
            ],
        }
    )


@needs("configure")
def price_new(request: HttpRequest) -> HttpResponse:
    """A new version of an operator price, with a summary in words."""
    page = FormPage(
        title=_("New price"),
        submit=_("Add the price"),
        back=reverse("prices"),
        crumb=_("Prices"),
        lead=_(
            "USD per one million tokens, not per token. A price is never edited: a newer one"
            " replaces it. Charges that are settled do not change."
        ),
    )
    initial = {name: request.GET.get(name, "") for name in ("provider", "model")}
    form = PriceForm(request.POST or None, initial=initial)

    def act(data: dict[str, Any]) -> Done:
        try:
            row = usage.add_price(
                provider=data["provider"],
                model=data["model"],
                rates={unit: data[unit] for unit in UNITS if data[unit]},
                valid_from_at=data["valid_from_at"],
                actor=actor_of(request),
                confirm=data["confirm"],
                reason=data["reason"],
            )
        except InvalidInput as error:
            field = error.field.removeprefix("rates.")
            raise InvalidInput(error.message, field=field, next_action=error.way_out) from error
        what = {"n": row.version, "what": f"{row.provider}/{row.model}"}
        return Done(page.back, _("Version %(n)s of %(what)s added.") % what)

    return run_form(request, page, form, act)


def _rates(snapshot: PriceSnapshot | None) -> Rates | None:
    return rates_of(to_plain(snapshot.rates)) if snapshot else None


def _service(service_id: str) -> Service:
    if not is_id(service_id):
        raise Http404
    try:
        return usage.get_service(service_id=service_id)
    except NotFound:
        raise Http404 from None
