"""What keeps a service from serving: no price, or no key in this server's environment."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from kernel.ids import KEY_NAMES_VARIABLE, key_value
from kernel.models import Service
from kernel.usage.pricing import PriceSnapshot


@dataclass(frozen=True, slots=True)
class Lack:
    """One thing that is missing: what it means, and the way out (`href` '' = not on a page)."""

    title: str
    text: str
    href: str = ""
    link: str = ""


def lacks_of(
    row: Service, price: PriceSnapshot | None, *, environ: Mapping[str, str]
) -> list[Lack]:
    """What a service in use lacks; nothing for a retired one. Pure."""
    if not row.active:
        return []
    found = []
    if price is None:
        found.append(_no_price(row))
    if row.api_key_env and not key_value(row.api_key_env, environ=environ).strip():
        found.append(_no_key(row, is_set=row.api_key_env in environ))
    return found


def _no_price(row: Service) -> Lack:
    means = _(
        "Its requests are refused, but for accounts without a cap that allow unpriced requests;"
        " theirs wait for a price."
    )
    if not row.price_provider:
        way = _("Name a price, provider/model, on this service.")
        change = reverse("service-change", args=[row.id])
        return Lack(_("It has no price"), f"{means} {way}", change, _("Name a price"))
    name = f"{row.price_provider}/{row.price_model}"
    query = urlencode({"provider": row.price_provider, "model": row.price_model})
    return Lack(
        _("No price is known for %(name)s") % {"name": name},
        f"{means} {_('Add that price, or name another one on this service.')}",
        f"{reverse('price-new')}?{query}",
        _("Add a price"),
    )


def _no_key(row: Service, *, is_set: bool) -> Lack:
    words = {"name": row.api_key_env, "names": KEY_NAMES_VARIABLE}
    if is_set:
        title = _("%(name)s is empty, or may not be used as a key") % words
        way = _("Give it a value, or add its name to %(names)s, where the server runs.") % words
    else:
        title = _("%(name)s is not set in this server's environment") % words
        way = _("Set it where the server and each worker run, in the environment or .env.") % words
    means = _("Until then every request to this service fails before it is sent.")
    return Lack(title, f"{way} {_('Then restart.')} {means}")
