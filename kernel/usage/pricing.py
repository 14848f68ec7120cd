"""Pricing: frozen price x metering = exact USD with its lines; holds; the explanation of a charge.

Pure, and without any float. A price is frozen as text when a request is admitted; what was not
priced then stays visible as a reason, never as 0 (A11-A13).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from kernel import money
from kernel.errors import InvalidInput
from kernel.usage.metering import Metering
from kernel.usage.price_data import VERSION, bundled_rates
from kernel.usage.rates import (
    EXACT,
    MILLION,
    decimal_text,
    from_plain,
    highest_rate,
    rate_for,
    to_plain,
)
from kernel.usage.rates import Rates as Rates
from kernel.usage.rates import Tier as Tier
from kernel.usage.rates import parse_rates as parse_rates
from kernel.usage.rates import rates_text as rates_text
from kernel.usage.units import COVERED_BY, UNITS

FORMAT = 1
SNAPSHOT_CHARS_MAX = 32_768
STANDARD_TIERS = frozenset({"default", "standard", "auto", "standard_only", "on_demand"})
REASONS: dict[str, str] = {
    "unpriced": "No price was valid when the request was admitted.",
    "unpriced_unit": "A unit that was used has no rate.",
    "unpriced_tier": "The service tier that served the request has no rates of its own.",
}


@dataclass(frozen=True, slots=True)
class OperatorPrice:
    """A price an operator entered, valid from `valid_from_at` until before `valid_until_at`."""

    provider: str
    model: str
    version: str
    rates: Rates
    valid_from_at: datetime
    valid_until_at: datetime | None = None

    def is_valid(self, *, provider: str, model: str, at: datetime) -> bool:
        """Whether it is a price of exactly this model at this time."""
        return (
            (self.provider, self.model) == (provider, model)
            and self.valid_from_at <= at
            and (self.valid_until_at is None or at < self.valid_until_at)
        )


@dataclass(frozen=True, slots=True)
class PriceSnapshot:
    """The price of one model as it was at admission; `source` is operator or genai-prices."""

    source: str
    version: str
    provider: str
    model: str
    rates: Mapping[str, tuple[Tier, ...]]

    def to_text(self) -> str:
        """Canonical JSON text, to be frozen in the request row."""
        values = {
            "format": FORMAT,
            "source": self.source,
            "version": self.version,
            "provider": self.provider,
            "model": self.model,
            "rates": to_plain(self.rates),
        }
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "PriceSnapshot":
        """The inverse of to_text. ValueError for a text that is no snapshot."""
        return _snapshot(text)


@lru_cache(maxsize=512)
def _snapshot(text: str) -> PriceSnapshot:
    try:
        values = json.loads(text) if len(text) <= SNAPSHOT_CHARS_MAX else None
        if type(values) is not dict or values.get("format") != FORMAT:
            raise ValueError("not a price snapshot")
        keys = ("source", "version", "provider", "model")
        names: list[Any] = [values.get(key) for key in keys]
        if any(type(name) is not str for name in names) or type(values.get("rates")) is not dict:
            raise ValueError("not a price snapshot")
        source, version, provider, model = names
        rates = MappingProxyType(from_plain(values["rates"]))
        return PriceSnapshot(source, version, provider, model, rates)
    except (InvalidInput, RecursionError) as error:
        raise ValueError(f"not a price snapshot: {error}") from None


def operator_price(
    *, provider: str, model: str, at: datetime, prices: Sequence[OperatorPrice]
) -> PriceSnapshot | None:
    """The operator's price valid at `at`: the one that became valid last. None without one."""
    valid = [p for p in prices if p.is_valid(provider=provider, model=model, at=at)]
    if not valid:
        return None
    # By length first: version 10 comes after version 9.
    chosen = max(valid, key=lambda p: (p.valid_from_at, len(p.version), p.version))
    return PriceSnapshot("operator", chosen.version, provider, model, chosen.rates)


def resolve(
    *, provider: str, model: str, at: datetime, operator_prices: Sequence[OperatorPrice] = ()
) -> PriceSnapshot | None:
    """The price of exactly (provider, model) at a time: operator's table, then bundled data (A12).

    None = unpriced. Never a guess by prefix, pattern, URL or a related provider.
    """
    own = operator_price(provider=provider, model=model, at=at, prices=operator_prices)
    if own is not None:
        return own
    rates = bundled_rates(provider=provider, model=model, at=at)
    if rates is None:
        return None
    return PriceSnapshot("genai-prices", VERSION, provider, model, rates)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a charge: count x rate / million = amount, exact decimal texts of USD."""

    unit: str
    count: int
    usd_per_million: str
    amount_usd: str


@dataclass(frozen=True, slots=True)
class Charge:
    """The exact reference price of one generation, or the reason why there is none."""

    lines: tuple[Line, ...]
    reference_usd: Decimal | None
    reason: str | None = None
    detail: str = ""


def price(snapshot: PriceSnapshot | None, metering: Metering) -> Charge:
    """Metering at a frozen price. With a reason there is no amount, only the lines that have one.

    The tier that served the request decides, not the one it asked for (G59). A unit without a rate
    is `unpriced_unit`, cached tokens too: whether they are cheaper than others is not known.
    """
    if metering.reason is not None:
        return Charge((), None, metering.reason, metering.detail)
    if snapshot is None:
        return Charge((), None, "unpriced", "no price was frozen with the request")
    tier = metering.service_tier or ""
    suffix = "" if not tier or tier in STANDARD_TIERS else f"@{tier}"
    if suffix and not any(key.endswith(suffix) for key in snapshot.rates):
        return Charge((), None, "unpriced_tier", f"the price has no rates for tier {tier[:40]}")
    counts = {unit: count for unit, count in metering.meters.items() if count}
    if f"requests{suffix}" in snapshot.rates:
        counts["requests"] = 1
    input_tokens = metering.input_tokens
    lines: list[Line] = []
    missing: list[str] = []
    for unit in UNITS:
        if unit not in counts:
            continue
        steps = _steps(snapshot, unit, suffix)
        if steps is None:
            missing.append(unit)
            continue
        rate = rate_for(steps, input_tokens=input_tokens)
        lines.append(Line(unit, counts[unit], rate, decimal_text(_amount(counts[unit], rate))))
    if missing:
        return Charge(tuple(lines), None, "unpriced_unit", f"no rate for {', '.join(missing)}")
    return Charge(tuple(lines), total_usd(lines))


def total_usd(lines: Sequence[Line]) -> Decimal:
    """The exact sum of a charge's lines."""
    total = Decimal(0)
    for line in lines:
        total = EXACT.add(total, Decimal(line.amount_usd))
    return total


def charge_nano(reference_usd: Decimal, multiplier_millionths: int) -> int:
    """Exact USD x multiplier -> nano-USD; the one rounding, half-even (A13). Or ValueError."""
    return money.round_to_nano(reference_usd, multiplier=multiplier_millionths)


def hold_nano(
    snapshot: PriceSnapshot,
    *,
    body_bytes: int,
    max_output_tokens: int,
    multiplier: int,
    service_tier: str | None = None,
) -> int:
    """An upper bound of the charge in nano-USD, rounded up (A15).

    Input: at most one token per byte of the body, at the highest input rate. Output: all of
    `max_output_tokens` (of all choices) at the highest output rate. Not bounded: what a provider
    fetches itself (linked images, searches); such a charge is posted all the same.
    """
    rates = {key: steps for key, steps in snapshot.rates.items() if "@" not in key}
    if service_tier:
        suffix = f"@{service_tier}"
        rates |= {key: steps for key, steps in snapshot.rates.items() if key.endswith(suffix)}
    usd_millionths = Decimal(0)
    for prefix, count in (("input", body_bytes), ("output", max_output_tokens), ("requests", 1)):
        highest = max(
            (
                highest_rate(steps, input_tokens_max=body_bytes)
                for key, steps in rates.items()
                if key.startswith(prefix)
            ),
            default=Decimal(0),
        )
        usd_millionths = EXACT.fma(highest, Decimal(count), usd_millionths)
    nano = EXACT.divide(EXACT.multiply(usd_millionths, Decimal(multiplier)), Decimal(1000))
    return min(int(nano.to_integral_value(ROUND_CEILING)), money.NANO_MAX)


def lines_text(lines: Sequence[Line]) -> str:
    """The lines as JSON text for the ledger row."""
    rows = [[line.unit, line.count, line.usd_per_million, line.amount_usd] for line in lines]
    return json.dumps(rows, separators=(",", ":"))


def lines_from_text(text: str) -> tuple[Line, ...]:
    """The inverse of lines_text. ValueError for a text that holds no lines."""
    rows = json.loads(text)
    shape = [str, int, str, str]
    if type(rows) is not list or any(
        type(row) is not list or [type(value) for value in row] != shape for row in rows
    ):
        raise ValueError("not the lines of a charge")
    return tuple(Line(*row) for row in rows)


def explain(lines: Sequence[Line], *, multiplier: int) -> list[str]:
    """The steps from counts to the amount charged, each from stored facts alone."""
    steps = [
        f"{line.unit}: {line.count} x ${line.usd_per_million} / 1,000,000 = ${line.amount_usd}"
        for line in lines
    ]
    total = total_usd(lines)
    steps.append(f"reference cost: ${decimal_text(total)}")
    factor = money.format_multiplier(multiplier)
    exact = EXACT.divide(EXACT.multiply(total, Decimal(multiplier)), Decimal(MILLION))
    steps.append(f"multiplier: ${decimal_text(total)} x {factor} = ${decimal_text(exact)}")
    charged = money.nano_to_usd(charge_nano(total, multiplier))
    steps.append(f"rounded once, half-even, to 9 decimals: ${charged}")
    return steps


def reported_gap(reference_usd: Decimal, reported_cost_usd: str | None) -> Decimal | None:
    """Provider's own figure minus ours in USD: evidence of a wrong price, never a charge (G76)."""
    if reported_cost_usd is None:
        return None
    return EXACT.subtract(Decimal(reported_cost_usd), reference_usd)


def _steps(snapshot: PriceSnapshot, unit: str, suffix: str) -> tuple[Tier, ...] | None:
    steps = snapshot.rates.get(unit + suffix)
    if steps is None and unit in COVERED_BY:
        return snapshot.rates.get(COVERED_BY[unit] + suffix)
    return steps


def _amount(count: int, usd_per_million: str) -> Decimal:
    return EXACT.scaleb(EXACT.multiply(Decimal(count), Decimal(usd_per_million)), -6)
