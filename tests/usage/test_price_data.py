"""Price look-ups: operator first, then the bundled table by exact name; else unpriced."""

import ast
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from genai_prices import types
from genai_prices.data import providers

from kernel.usage import price_data, pricing
from kernel.usage.metering import Metering
from kernel.usage.pricing import OperatorPrice, PriceSnapshot, Tier, parse_rates, price
from kernel.usage.units import UNITS

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def used(**meters: int) -> Metering:
    return Metering({"input": 0, "output": 0, **meters})


def operator(version: str, start: int, end: int | None = None, model: str = "gpt-4o") -> Any:
    return OperatorPrice(
        provider="openai",
        model=model,
        version=version,
        rates=parse_rates({"input": "7", "output": "8"}),
        valid_from_at=AT + timedelta(days=start),
        valid_until_at=None if end is None else AT + timedelta(days=end),
    )


def find(model: str, *, provider: str = "openai", at: datetime = AT, own: Any = ()) -> Any:
    return pricing.resolve(provider=provider, model=model, at=at, operator_prices=own)


def test_the_operators_price_that_became_valid_last_wins_over_the_bundled_one():
    own = [operator("1", -9), operator("2", -5), operator("3", 5), operator("4", -4, 0)]
    found = find("gpt-4o", own=own)
    assert (found.source, found.version) == ("operator", "2")
    assert find("gpt-4o", own=own, at=AT - timedelta(days=2)).version == "4"
    assert find("gpt-4o", own=[operator("9", 1)]).source == "genai-prices"
    assert find("gpt-4o", own=[operator("9", 0)]).version == "9"
    assert find("gpt-4o", own=[operator("9", -1, model="gpt-4")]).source == "genai-prices"
    assert pricing.operator_price(provider="openai", model="x", at=AT, prices=own) is None


def test_the_bundled_table_is_found_by_exact_id_or_listed_alias():
    found = find("gpt-4o")
    assert (found.source, found.version) == ("genai-prices", "0.2.3")
    assert found.rates["input"] == (Tier(0, "2.5"),)
    assert found.rates["output"] == (Tier(0, "10"),)
    assert find("gpt-4o-2024-08-06").rates == found.rates


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "cx/gpt-5.5"),
        ("openai", "openai/gpt-4o"),
        ("openai", "GPT-4o"),
        ("openai", "gpt-4o "),
        ("openai", "gpt-4o-2099-01-01"),
        ("openai", "gpt-4o-20240806"),
        ("OpenAI", "gpt-4o"),
        ("azure", "gpt-4o-mini-search-preview-2025-03-11"),
        ("anthropic", "claude-sonnet-4-5-20250929"),
        ("anthropic", "claude-sonnet-4.5"),
        ("https://api.openai.com", "gpt-4o"),
        ("", "gpt-4o"),
        ("openai", ""),
    ],
)
def test_nothing_is_found_by_prefix_case_pattern_url_or_related_provider(provider: str, model: str):
    assert find(model, provider=provider) is None


def test_an_empty_price_and_a_price_in_other_units_are_no_price():
    assert find("gpt-4o", provider="github-copilot") is None
    assert find("whisper-1") is None
    assert find("text-embedding-3-small") is None
    assert find("perplexity/sonar", provider="perplexity") is None


def test_the_price_in_force_at_the_time_is_taken_by_day_and_by_hour():
    night = datetime(2026, 11, 20, 0, 29, 59, tzinfo=UTC)
    day = datetime(2026, 11, 20, 0, 30, tzinfo=UTC)
    chat = [find("deepseek-chat", provider="deepseek", at=at).rates for at in (night, day)]
    assert [rates["input"][0].usd_per_million for rates in chat] == ["0.135", "0.27"]
    east = day.astimezone(tz=ZoneInfo("Asia/Tokyo"))
    assert find("deepseek-chat", provider="deepseek", at=east).rates == chat[1]
    early = find("gpt-4o", at=datetime(2026, 10, 11, 23, 59, tzinfo=UTC))
    late = find("gpt-4o", at=datetime(2026, 10, 12, tzinfo=UTC))
    assert "input@priority" not in early.rates
    assert late.rates["input@priority"] == (Tier(0, "4.25"),)
    assert late.rates["web_search_requests@priority"] == (Tier(0, "10000"),)
    with pytest.raises(ValueError, match="zone"):
        find("gpt-4o", at=datetime(2026, 11, 20))


def test_every_bundled_price_is_read_strictly_and_survives_freezing():
    usable = 0
    for provider in price_data.known_providers():
        for model in price_data.known_models(provider):
            found = find(model, provider=provider)
            if found is not None:
                usable += 1
                text = found.to_text()
                assert PriceSnapshot.from_text(text) == found
                assert len(text) < 1500
                assert {key.partition("@")[0] for key in found.rates} <= set(UNITS)
    assert usable > 2000


def test_bundled_rates_agree_with_the_package_where_both_have_a_price():
    """Same numbers as the package's own calculation, for text, cached tokens and steps."""
    compared = 0
    for provider in providers:
        for model in provider.models:
            found = find(model.id, provider=provider.id)
            if found is None or "input_cached" not in found.rates:
                continue
            if {"requests", "output_reasoning"} & set(found.rates):
                continue
            for size in (1000, 300_000):
                theirs = model.calc_price(
                    types.Usage(input_tokens=size, cache_read_tokens=size // 4, output_tokens=500),
                    provider,
                    genai_request_timestamp=AT,
                )
                metering = used(input=size - size // 4, input_cached=size // 4, output=500)
                assert price(found, metering).reference_usd == theirs.total_price
                compared += 1
    assert compared > 1000


def test_the_guards_hold_against_what_the_package_could_bring():
    empty = types.ModelPrice()
    unknown = types.ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(1), tea_mtok=Decimal(1))
    assert price_data._rates(empty) == {}
    assert price_data._rates(unknown) is None
    never = types.ConditionalPrice(
        types.StartDateConstraint((AT + timedelta(days=1)).date()), prices=empty
    )
    model = types.ModelInfo("m", types.ClauseEquals("m"), prices=[never])
    assert price_data._rates_at(model, AT) is None


def test_the_table_is_never_updated_over_the_network():
    source = Path(price_data.__file__).read_text()
    tree = ast.parse(source)
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and "genai" in node.module
        for alias in node.names
    }
    assert imported == {"types", "providers"}
