"""Prices as people type and read them: provider/model, rates, and what a sample request costs."""

from collections.abc import Mapping
from typing import Any

from kernel.management.base import shown
from kernel.usage import pricing
from kernel.usage.metering import Metering
from kernel.usage.rates import Tier, decimal_text

SAMPLE = Metering({"input": 1000, "output": 500})
RATES_HELP = """\
Rates are USD per million: input=2.50 output=10 input_cached=1.25
  a step by size:    input=1.25,200000:2.50   (2.50 for requests above 200,000 input tokens)
  a service tier:    input@priority=5 output@priority=20
  other units:       web_search_requests=10000 is 0.01 for each search
input and output are required; write 0 for what is free."""


def parse_price_name(text: str) -> tuple[str, str]:
    """'openai/gpt-4o' -> ('openai', 'gpt-4o'); a model may hold further slashes. ValueError."""
    provider, slash, model = text.partition("/")
    if not (provider.strip() and slash and model.strip()):
        raise ValueError(f"write provider/model, such as openai/gpt-4o, not {text[:60]!r}")
    return provider, model


def parse_rate_words(words: list[str]) -> dict[str, Any]:
    """['input=1.25,200000:2.5', ...] -> the form of parse_rates, which checks it. ValueError."""
    rates: dict[str, Any] = {}
    for word in words:
        unit, equals, text = word.partition("=")
        if not (unit and equals and text):
            raise ValueError(f"write a rate as unit=number, such as input=2.50, not {word[:60]!r}")
        if unit in rates:
            raise ValueError(f"{unit[:60]} is given twice")
        first, *steps = text.split(",")
        rates[unit] = [[0, first], *map(_step, steps)] if steps else first
    return rates


def _step(text: str) -> list[Any]:
    above, colon, rate = text.partition(":")
    if not (colon and above.isascii() and above.isdigit() and len(above) < 13):
        raise ValueError(f"write a step as tokens:rate, such as 200000:2.50, not {text[:60]!r}")
    return [int(above), rate]


def rates_words(rates: Mapping[str, tuple[Tier, ...]]) -> str:
    """Rates as they are typed: 'input=2.5 output=10'."""
    return " ".join(f"{unit}={_steps_word(steps)}" for unit, steps in rates.items())


def rates_lines(rates: Mapping[str, tuple[Tier, ...]]) -> list[str]:
    """The same, a line for the plain rates and one for each service tier."""
    tiers: dict[str, dict[str, tuple[Tier, ...]]] = {"": {}}
    for unit, steps in rates.items():
        tiers.setdefault(unit.partition("@")[2], {})[unit] = steps
    return [rates_words(tiers[tier]) for tier in sorted(tiers)]


def _steps_word(steps: tuple[Tier, ...]) -> str:
    first, *more = steps
    return ",".join(
        [first.usd_per_million, *(f"{step.above_tokens}:{step.usd_per_million}" for step in more)]
    )


def sample_cost(snapshot: pricing.PriceSnapshot) -> str:
    """'a request of 1,000 input and 500 output tokens costs $0.0075'."""
    charge = pricing.price(snapshot, SAMPLE)
    assert charge.reference_usd is not None, "every price has an input and an output rate"
    cost = decimal_text(charge.reference_usd)
    return f"a request of 1,000 input and 500 output tokens costs ${cost}"


def price_words(snapshot: pricing.PriceSnapshot) -> str:
    """'openai/gpt-4o, operator version 2' or '..., genai-prices version 0.2.3'."""
    name = shown(f"{snapshot.provider}/{snapshot.model}")
    return f"{name}, {snapshot.source} version {snapshot.version}"
