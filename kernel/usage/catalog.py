"""Services and operator prices: what callers may name, and what it costs (A12)."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Max

from kernel import audit, clock, sql
from kernel.errors import AddressRefused, Conflict, InvalidInput, NotFound
from kernel.http.addresses import AddressPolicy, check_url
from kernel.ids import check_id, check_key_name, check_text, new_id
from kernel.models import Account, Price, Service
from kernel.transactions import insert_new_in_tx, reading, requires_transaction, transaction
from kernel.usage import pricing
from kernel.usage.rates import from_plain, parse_rates, rates_text
from kernel.versions import change_at_version_in_tx

SERVICE_FIELDS = (
    "account_id",
    "base_url",
    "model",
    "api_key_env",
    "price_provider",
    "price_model",
    "max_output_tokens",
    "allow_private",
    "active",
)
MODEL_CHARS_MAX, PROVIDER_CHARS_MAX, BASE_URL_CHARS_MAX = 200, 120, 500
PRICES_LISTED_MAX = 1000


@transaction
def add_service(*, service_id: str, actor: audit.Actor, **fields: Any) -> Service:
    """Add a service; `fields` are those of SERVICE_FIELDS. InvalidInput names a wrong field.

    The key itself never reaches a row: `api_key_env` is the name of an environment variable.
    """
    check_id(service_id, field="service_id")
    values = _checked(fields)
    if Service.objects.filter(id=service_id).exists():
        raise Conflict(f"a service named {service_id} exists", field="service_id")
    now = clock.db_now()
    row = Service(id=service_id, created_at=now, updated_at=now, **values)
    insert_new_in_tx(row)
    audit.append_in_tx(
        actor=actor, action="service.add", kind="service", object_id=service_id, after=values
    )
    return row


@transaction
def change_service(
    *, service_id: str, version: int, actor: audit.Actor, reason: str = "", **fields: Any
) -> Service:
    """Change fields of the service at `version`; LostRace when somebody changed it meanwhile.

    Requests admitted before keep their frozen price and are not dispatched on the new route (A11).
    """
    row = Service.objects.select_for_update().filter(id=service_id).first()
    if row is None:
        raise NotFound(f"no service {service_id}")
    before = {name: getattr(row, name) for name in SERVICE_FIELDS}
    values = _checked({**before, **fields})
    change_at_version_in_tx(row, version, values)
    audit.append_in_tx(
        actor=actor,
        action="service.change",
        kind="service",
        object_id=service_id,
        before=before,
        after=values,
        reason=reason,
    )
    return row


@transaction
def add_price(
    *,
    provider: str,
    model: str,
    rates: Mapping[str, Any],
    valid_from_at: datetime | None,
    actor: audit.Actor,
    valid_until_at: datetime | None = None,
    confirm: bool = False,
    reason: str = "",
) -> Price:
    """Add the next version of an operator price; earlier versions stay (A11b, A12).

    `rates` maps units to USD per million as decimal strings. InvalidInput names a wrong or
    implausible rate; an implausible one passes with `confirm`. Without `valid_from_at` it holds
    from now on.
    """
    provider, model = _checked_price_name(provider, model)
    parsed = parse_rates(dict(rates), confirm=confirm)
    now = clock.db_now()
    start = valid_from_at or now
    for field, at in (("valid_from_at", start), ("valid_until_at", valid_until_at)):
        if at is not None and at.tzinfo is None:
            raise InvalidInput("a time needs its zone", field=field)
    if valid_until_at is not None and valid_until_at <= start:
        raise InvalidInput("the end must lie after the start", field="valid_until_at")
    same = Price.objects.filter(provider=provider, model=model)
    version = (same.aggregate(last=Max("version"))["last"] or 0) + 1
    row = Price(
        id=new_id("prc"),
        provider=provider,
        model=model,
        version=version,
        rates_text=rates_text(parsed),
        valid_from_at=start,
        valid_until_at=valid_until_at,
        created_by=f"{actor.kind}:{actor.id}"[:160],
        created_at=now,
    )
    insert_new_in_tx(row)
    audit.append_in_tx(
        actor=actor,
        action="price.add",
        kind="price",
        object_id=row.id,
        after={
            "provider": provider,
            "model": model,
            "version": version,
            "rates": json.loads(row.rates_text),
            "valid_from_at": start,
            "valid_until_at": valid_until_at,
        },
        reason=reason,
    )
    return row


@reading
def list_services(*, account_id: str | None = None) -> list[Service]:
    """All services by id; with `account_id`, the active ones that account may use."""
    rows = Service.objects.order_by("id")
    if account_id is not None:
        rows = rows.filter(active=True, account_id__in=["", account_id])
    return list(rows)


@reading
def get_service(*, service_id: str) -> Service:
    """One service. NotFound."""
    row = Service.objects.filter(id=service_id).first()
    if row is None:
        raise NotFound(f"no service {service_id}")
    return row


@requires_transaction
def price_for_service_in_tx(*, service: Service, at: datetime) -> pricing.PriceSnapshot | None:
    """The price of a service's route at a time: operator table first, then bundled data (A12)."""
    if not service.price_provider or not service.price_model:
        return None
    return pricing.resolve(
        provider=service.price_provider,
        model=service.price_model,
        at=at,
        operator_prices=operator_prices_in_tx(
            provider=service.price_provider, model=service.price_model
        ),
    )


@requires_transaction
def price_for_request_in_tx(
    *, service_id: str, model: str, admitted_at: datetime
) -> pricing.PriceSnapshot | None:
    """An operator price valid at the admission of a request admitted without one (A11b).

    Never bundled data, and never for another model than `model`, the one it was sent to.
    """
    service = Service.objects.filter(id=service_id).first()
    if service is None or service.model != model:
        return None
    names = {"provider": service.price_provider, "model": service.price_model}
    return pricing.operator_price(**names, at=admitted_at, prices=operator_prices_in_tx(**names))


@reading
def price_in_force(*, provider: str, model: str, at: datetime) -> pricing.PriceSnapshot | None:
    """The price that a request admitted at `at` would get: operator's, then bundled data (A12)."""
    return pricing.resolve(
        provider=provider, model=model, at=at, operator_prices=_operator_prices(provider, model)
    )


@reading
def prices_in_force(
    *, services: Sequence[Service], at: datetime
) -> dict[str, pricing.PriceSnapshot | None]:
    """The price each service's route has at `at`, by service id. One query for all of them."""
    operator: dict[tuple[str, str], list[pricing.OperatorPrice]] = defaultdict(list)
    for row in Price.objects.order_by("provider", "model", "-version")[:PRICES_LISTED_MAX]:
        operator[row.provider, row.model].append(_operator_price(row))
    return {
        row.id: pricing.resolve(
            provider=row.price_provider,
            model=row.price_model,
            at=at,
            operator_prices=operator[row.price_provider, row.price_model],
        )
        for row in services
    }


@reading
def list_prices(*, provider: str = "", model: str = "") -> list[Price]:
    """Operator prices by provider and model, newest version first; at most PRICES_LISTED_MAX."""
    rows = Price.objects.order_by("provider", "model", "-version")
    if provider:
        rows = rows.filter(provider=provider)
    if model:
        rows = rows.filter(model=model)
    return list(rows[:PRICES_LISTED_MAX])


@requires_transaction
def operator_prices_in_tx(*, provider: str, model: str) -> Sequence[pricing.OperatorPrice]:
    """All versions of an operator price, newest first."""
    rows = sql.rows(Price, {"provider": provider, "model": model})
    return [_operator_price(row) for row in sorted(rows, key=lambda row: -row.version)]


def _operator_price(row: Price) -> pricing.OperatorPrice:
    return pricing.OperatorPrice(
        provider=row.provider,
        model=row.model,
        version=str(row.version),
        rates=from_plain(json.loads(row.rates_text)),
        valid_from_at=row.valid_from_at,
        valid_until_at=row.valid_until_at,
    )


def _operator_prices(provider: str, model: str) -> list[pricing.OperatorPrice]:
    return [
        _operator_price(row)
        for row in Price.objects.filter(provider=provider, model=model).order_by("-version")
    ]


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    unknown = set(fields) - set(SERVICE_FIELDS)
    if unknown:
        name = sorted(unknown)[0]
        raise InvalidInput(f"a service has no field {name}", field=name)
    values = {name: fields[name] for name in SERVICE_FIELDS if name in fields}
    values |= _checked_route(values)
    for name in ("allow_private", "active"):
        if name in values and type(values[name]) is not bool:
            raise InvalidInput(f"{name} is true or false", field=name)
    limit = values.get("max_output_tokens")
    if limit is not None and (type(limit) is not int or not 1 <= limit <= 10_000_000):
        raise InvalidInput("between 1 and 10,000,000 tokens", field="max_output_tokens")
    if values.get("account_id"):
        account_id = check_id(values["account_id"], field="account_id")
        if not Account.objects.filter(id=account_id).exists():
            raise InvalidInput(f"no account {account_id}", field="account_id")
    return values


def _checked_route(values: Mapping[str, Any]) -> dict[str, str]:
    """Where requests go, with which key, at which price."""
    base_url = str(values.get("base_url") or "").rstrip("/")
    try:
        check_url(base_url, AddressPolicy(allow_private=bool(values.get("allow_private"))))
    except AddressRefused as error:
        raise InvalidInput(
            error.message,
            field="base_url",
        ) from error
    if len(base_url) > BASE_URL_CHARS_MAX or "?" in base_url or "#" in base_url:
        raise InvalidInput(
            f"at most {BASE_URL_CHARS_MAX} characters, without ? and #", field="base_url"
        )
    key = values.get("api_key_env") or ""
    if key != "":
        check_key_name(key, field="api_key_env")
    provider, model = values.get("price_provider") or "", values.get("price_model") or ""
    if provider or model:
        provider, model = _checked_price_name(provider, model)
    return {
        "base_url": base_url,
        "model": check_text(values.get("model"), field="model", chars_max=MODEL_CHARS_MAX),
        "api_key_env": key,
        "price_provider": provider,
        "price_model": model,
    }


def _checked_price_name(provider: object, model: object) -> tuple[str, str]:
    """The two halves of `provider/model`, as every screen and command writes it."""
    provider = check_text(provider, field="provider", chars_max=PROVIDER_CHARS_MAX)
    if "/" in provider:
        raise InvalidInput("a provider's name has no /", field="provider")
    return provider, check_text(model, field="model", chars_max=MODEL_CHARS_MAX)
