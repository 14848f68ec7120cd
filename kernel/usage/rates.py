"""Rates: USD per million of a unit, by size of the request and by service tier, as exact text.

A rate table maps a unit, or `unit@tier` for a service tier of its own, to its steps. The step with
the highest `above_tokens` below the request's input tokens prices the whole request (G61).
"""

import json
import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, NamedTuple

from kernel.conf import conf
from kernel.errors import InvalidInput
from kernel.usage.units import UNITS, is_token

EXACT = Context(prec=80, rounding=ROUND_HALF_EVEN)
MILLION = 1_000_000
STEPS_MAX = 8
_RATE = re.compile(r"[0-9]{1,10}(\.[0-9]{1,30})?")
_TIER_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class Tier(NamedTuple):
    """One step: from more than `above_tokens` input tokens on, this many USD per million."""

    above_tokens: int
    usd_per_million: str


Rates = dict[str, tuple[Tier, ...]]


def decimal_text(value: Decimal) -> str:
    """Plain text without exponent and trailing zeros: Decimal('1E+1') -> '10'."""
    text = f"{value:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def tiered(steps: Iterable[Tier]) -> tuple[Tier, ...]:
    """Steps in rising order. ValueError when they do not start at 0 or a border comes twice."""
    rows = tuple(sorted(steps))
    borders = [row.above_tokens for row in rows]
    if not rows or borders[0] != 0 or len(set(borders)) < len(borders):
        raise ValueError("steps start above 0 tokens, each border once")
    return rows


def rate_for(steps: tuple[Tier, ...], *, input_tokens: int) -> str:
    """The rate of the whole request: 200000 tokens are not above 200000, 200001 are (G61)."""
    rate = steps[0].usd_per_million
    for step in steps:
        if input_tokens > step.above_tokens:
            rate = step.usd_per_million
    return rate


def highest_rate(steps: tuple[Tier, ...], *, input_tokens_max: int) -> Decimal:
    """The highest rate a request of at most this size can reach."""
    return max(
        Decimal(step.usd_per_million)
        for step in steps
        if step.above_tokens == 0 or step.above_tokens < input_tokens_max
    )


def to_plain(rates: Mapping[str, tuple[Tier, ...]]) -> dict[str, Any]:
    """Rates as JSON values: a text for one step, else [[above, text], ...]."""
    return {
        key: steps[0].usd_per_million if len(steps) == 1 else [list(step) for step in steps]
        for key, steps in rates.items()
    }


def from_plain(values: Mapping[str, Any]) -> Rates:
    """The inverse of to_plain, and the shape of an operator's form. InvalidInput names the key."""
    return {key: _steps(key, value) for key, value in values.items()}


def rates_text(rates: Rates) -> str:
    """Canonical JSON text of a rate table."""
    return json.dumps(to_plain(rates), sort_keys=True, separators=(",", ":"))


def parse_rates(values: object, *, confirm: bool = False) -> Rates:
    """An operator's price form -> rates, in USD per million of each unit.

    `values` maps a unit or `unit@tier` to a decimal text, or to a list of [above_tokens, text].
    InvalidInput names the field: unknown unit, no plain decimal text, negative, no input or output
    rate, or (`implausible_rate`, unless confirm=True) a rate so high or low that it was probably
    meant per token (G77).
    """
    if not isinstance(values, Mapping) or not values:
        raise InvalidInput("a price maps units to rates", field="rates")
    for key in values:
        unit, has_tier, tier = key.partition("@") if type(key) is str else ("", "", "")
        if unit not in UNITS or (has_tier and not _TIER_NAME.fullmatch(tier)):
            raise InvalidInput(f"no such unit: {str(key)[:60]}", field=f"rates.{str(key)[:60]}")
    rates = from_plain(values)
    for needed in ("input", "output"):
        if needed not in rates:
            raise InvalidInput(
                f"a price needs an {needed} rate; write 0 if it is free", field=f"rates.{needed}"
            )
    if not confirm:
        for key, steps in rates.items():
            for step in steps:
                _check_plausible(key, Decimal(step.usd_per_million))
    return rates


def _steps(key: str, value: object) -> tuple[Tier, ...]:
    field = f"rates.{key}"
    rows: list[Any] = value if isinstance(value, list) else [[0, value]]
    if len(rows) > STEPS_MAX:
        raise InvalidInput(f"{key}: at most {STEPS_MAX} steps", field=field)
    steps = []
    for row in rows:
        if (
            not isinstance(row, list | tuple)
            or len(row) != 2
            or type(row[0]) is not int
            or row[0] < 0
        ):
            raise InvalidInput(f"{key}: a step is [above_tokens, rate]", field=field)
        above, rate = row
        if type(rate) is not str or not _RATE.fullmatch(rate):
            raise InvalidInput(
                f'{key}: a rate is a decimal text of at least 0, such as "2.50"', field=field
            )
        steps.append(Tier(above, decimal_text(Decimal(rate))))
    try:
        return tiered(steps)
    except ValueError as error:
        raise InvalidInput(f"{key}: {error}", field=field) from None


def _check_plausible(key: str, rate: Decimal) -> None:
    scale = 1 if is_token(key) else 1000  # a search costs about as much as thousands of tokens
    most = Decimal(conf.rate_usd_per_million_max) * scale
    least = Decimal(conf.rate_microusd_per_million_min) / MILLION * scale
    if rate == 0 or least <= rate <= most:
        return
    raise InvalidInput(
        f"{key}: {decimal_text(rate)} USD per million is not plausible; was it meant per one?",
        field=f"rates.{key}",
        code="implausible_rate",
        next_action="Enter USD per million, or confirm this rate.",
    )
