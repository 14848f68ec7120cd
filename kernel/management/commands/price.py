"""`manage.py price`: operator prices, and what the bundled price data says (A12, L4)."""

import difflib
import json
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from kernel import clock, usage
from kernel.errors import InvalidInput
from kernel.management.base import (
    KernelCommand,
    Options,
    actor,
    add_json,
    argument,
    parse_time,
    plain,
    shown,
    when,
)
from kernel.management.prices import (
    RATES_HELP,
    parse_price_name,
    parse_rate_words,
    price_words,
    rates_lines,
    rates_words,
    sample_cost,
)
from kernel.models import Price
from kernel.usage.price_data import VERSION, bundled_rates, known_models, known_providers
from kernel.usage.pricing import PriceSnapshot
from kernel.usage.rates import from_plain, to_plain


class Command(KernelCommand):
    help = "Prices: the operator's own, and the bundled data. The operator's come first."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        add = self.add_act(
            acts, "add", self._add, help="Add the next version of a price.", more=RATES_HELP
        )
        _add_name(add)
        add.add_argument("rates", nargs="+", metavar="UNIT=RATE", help="USD per million, see below")
        _add_time(
            add,
            "--from",
            "valid from this time (default: now); a past one also prices the"
            " requests that were admitted without a price since then",
        )
        _add_time(add, "--until", "valid until before this time (default: without end)")
        add.add_argument(
            "--confirm", action="store_true", help="accept a rate that looks like a mistake"
        )
        add.add_argument("--reason", default="", help="why, for the audit trail")
        listing = self.add_act(acts, "list", self._list, help="List the operator's prices.")
        add_json(listing)
        show = self.add_act(
            acts, "show", self._show, help="Show the price in force, and all its versions."
        )
        _add_name(show)
        _add_time(show, "--at", "in force at this time (default: now)")
        add_json(show)
        lookup = self.add_act(
            acts, "lookup", self._lookup, help="Show what the bundled price data says."
        )
        _add_name(lookup)
        _add_time(lookup, "--at", "at this time (default: now)")
        add_json(lookup)

    def _add(self, options: Options) -> None:
        provider, model = options["name"]
        try:
            rates = parse_rate_words(options["rates"])
        except ValueError as error:
            raise CommandError(f"{error}. See manage.py price add --help.") from None
        try:
            row = usage.add_price(
                provider=provider,
                model=model,
                rates=rates,
                valid_from_at=options["from"],
                valid_until_at=options["until"],
                confirm=options["confirm"],
                reason=options["reason"],
                actor=actor(),
            )
        except InvalidInput as error:
            if error.error_code != "implausible_rate":
                raise
            raise CommandError(f"{plain(error)} (--confirm accepts it as it is.)") from error
        snapshot = _snapshot(row)
        self.say(
            f"Price {shown(provider)}/{shown(model)} version {row.version} added,"
            f" valid {_validity(row)}.",
            *(f"  {line}" for line in rates_lines(snapshot.rates)),
            f"  {sample_cost(snapshot)}",
        )
        bundled = _bundled(provider, model, at=row.valid_from_at)
        if bundled is not None:
            self.say(f"  by the bundled data {sample_cost(bundled)}")
        self.say("Requests that were priced at their admission keep that price.")

    def _list(self, options: Options) -> None:
        rows = usage.list_prices()
        if options["json"]:
            self.document([_plain(row) for row in rows])
            return
        self._table(rows, none="No operator prices; the bundled data applies (price lookup).")

    def _show(self, options: Options) -> None:
        provider, model = options["name"]
        at = options["at"] or clock.now()
        found = usage.price_in_force(provider=provider, model=model, at=at)
        rows = usage.list_prices(provider=provider, model=model)
        if options["json"]:
            self.document(
                {
                    "at": at,
                    "in_force": _plain_snapshot(found) if found else None,
                    "operator_versions": [_plain(row) for row in rows],
                }
            )
            return
        if found is None:
            self.say(f"At {when(at)} there is no price for {shown(provider)}/{shown(model)}.")
        else:
            self._describe(found, at=at)
        if rows:
            self.say("")
            self._table(rows, none="")

    def _lookup(self, options: Options) -> None:
        provider, model = options["name"]
        at = options["at"] or clock.now()
        found = _bundled(provider, model, at=at)
        if found is None:
            raise CommandError(_nothing_bundled(provider, model))
        if options["json"]:
            self.document(_plain_snapshot(found))
        else:
            self._describe(found, at=at)

    def _describe(self, found: PriceSnapshot, *, at: datetime) -> None:
        self.say(
            f"{price_words(found)}, at {when(at)}, in USD per million:",
            *(f"  {line}" for line in rates_lines(found.rates)),
            f"  {sample_cost(found)}",
        )

    def _table(self, rows: list[Price], *, none: str) -> None:
        self.table(
            ("PRICE", "VERSION", "VALID", "BY", "RATES, USD PER MILLION"),
            [
                (
                    f"{row.provider}/{row.model}",
                    row.version,
                    _validity(row),
                    row.created_by,
                    rates_words(_snapshot(row).rates),
                )
                for row in rows
            ],
            none=none,
        )


def _add_name(parser: CommandParser) -> None:
    parser.add_argument(
        "name", type=argument(parse_price_name), metavar="PROVIDER/MODEL", help="exactly as used"
    )


def _add_time(parser: CommandParser, option: str, about: str) -> None:
    parser.add_argument(
        option, type=argument(parse_time), metavar="TIME", help=f"{about}; ISO 8601, UTC"
    )


def _bundled(provider: str, model: str, *, at: datetime) -> PriceSnapshot | None:
    rates = bundled_rates(provider=provider, model=model, at=at)
    if rates is None:
        return None
    return PriceSnapshot("genai-prices", VERSION, provider, model, rates)


def _nothing_bundled(provider: str, model: str) -> str:
    """Why the bundled data gives no price; names that look alike are only offered, never used."""
    models = known_models(provider)
    name = f"{shown(provider)}/{shown(model)}"
    if not models:
        return (
            f"The bundled data (genai-prices {VERSION}) has no provider {shown(provider)}."
            f" It knows: {', '.join(known_providers())}."
        )
    if model in models:
        return f"The bundled data lists {name} without a price that can be used. Add your own."
    near = difflib.get_close_matches(model, models, n=6, cutoff=0.5)
    offer = f" It has: {', '.join(near)}." if near else ""
    return f"The bundled data (genai-prices {VERSION}) has no {name}.{offer}"


def _snapshot(row: Price) -> PriceSnapshot:
    rates = from_plain(json.loads(row.rates_text))
    return PriceSnapshot("operator", str(row.version), row.provider, row.model, rates)


def _validity(row: Price) -> str:
    until = f" until {when(row.valid_until_at)}" if row.valid_until_at else ""
    return f"from {when(row.valid_from_at)}{until}"


def _plain_snapshot(found: PriceSnapshot) -> dict[str, Any]:
    return {
        "provider": found.provider,
        "model": found.model,
        "source": found.source,
        "version": found.version,
        "usd_per_million": to_plain(found.rates),
    }


def _plain(row: Price) -> dict[str, Any]:
    return {
        "price_id": row.id,
        **_plain_snapshot(_snapshot(row)),
        "valid_from_at": row.valid_from_at,
        "valid_until_at": row.valid_until_at,
        "created_by": row.created_by,
        "created_at": row.created_at,
    }
