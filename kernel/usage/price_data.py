"""Price data: the bundled genai-prices table, read strictly, as rates of our units.

Only an exact (provider, model id) or an alias the table lists literally is a match: its rules by
prefix, substring or pattern, its provider guesses and its network updater are not used (A12, G74).
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from importlib.metadata import version

from genai_prices import types
from genai_prices.data import providers

from kernel.usage.rates import EXACT, MILLION, Rates, Tier, decimal_text, tiered

VERSION = version("genai-prices")

# price key of the table -> our unit and how many of it its number covers
_KEYS: dict[str, tuple[str, int]] = {
    "input_mtok": ("input", 1_000_000),
    "cache_read_mtok": ("input_cached", 1_000_000),
    "cache_write_mtok": ("input_cache_write", 1_000_000),
    "cache_write_1h_mtok": ("input_cache_write_1h", 1_000_000),
    "input_audio_mtok": ("input_audio", 1_000_000),
    "cache_audio_read_mtok": ("input_cached_audio", 1_000_000),
    "input_image_mtok": ("input_image", 1_000_000),
    "cache_image_read_mtok": ("input_cached_image", 1_000_000),
    "input_video_mtok": ("input_video", 1_000_000),
    "cache_video_read_mtok": ("input_cached_video", 1_000_000),
    "output_mtok": ("output", 1_000_000),
    "output_reasoning_mtok": ("output_reasoning", 1_000_000),
    "output_audio_mtok": ("output_audio", 1_000_000),
    "output_image_mtok": ("output_image", 1_000_000),
    "output_video_mtok": ("output_video", 1_000_000),
    "output_citation_mtok": ("output_citation", 1_000_000),
    "web_searches_kcount": ("web_search_requests", 1_000),
    "code_executions_kcount": ("code_execution_requests", 1_000),
    "requests_kcount": ("requests", 1_000),
}
# Charged for uses that no chat completion reports: such a price says nothing about our units.
_BESIDE_THE_POINT = frozenset({"storage_searches_kcount"})
# Variants that a response names as the tier that served it; `batch` is no chat completion.
_TIER_KEYS = ("service_tier", "speed")


def bundled_rates(*, provider: str, model: str, at: datetime) -> Rates | None:
    """Rates of a model at a time, tiers as `unit@tier`; None when the table has no usable price.

    Not usable: unknown model, empty price, no input or output rate, a unit we do not meter (pages,
    characters, hours), a price that depends on something no response tells. ValueError: naive `at`.
    The result is shared: do not change it.
    """
    if at.tzinfo is None:
        raise ValueError("a price is looked up at a time with a zone")
    found = _models(provider).get(model)
    if found is None:
        return None
    if _changes_by_the_hour(found):
        return _rates_at(found, at)
    return _rates_on_day(provider, model, at.astimezone(UTC).date())


@lru_cache(maxsize=4096)
def _rates_on_day(provider: str, model: str, day: date) -> Rates | None:
    noon = datetime.combine(day, time(12), tzinfo=UTC)  # start dates are whole UTC days
    return _rates_at(_models(provider)[model], noon)


def _changes_by_the_hour(model: types.ModelInfo) -> bool:
    rows = [] if isinstance(model.prices, types.ModelPrice) else model.prices
    return any(
        not isinstance(row.constraint, types.StartDateConstraint | None)
        for row in (*rows, *(model.price_variants or ()))
    )


def _rates_at(model: types.ModelInfo, at: datetime) -> Rates | None:
    standard = _standard(model, at)
    if standard is None:
        return None
    rates = _rates(standard)
    if rates is None or "input" not in rates or "output" not in rates:
        return None
    for tier, prices in _variants(model, at):
        changed = _rates(prices) if tier else None
        if changed is None or "@" in tier:
            return None
        if changed:
            rates |= {f"{unit}@{tier}": row for unit, row in ({**_plain(rates), **changed}).items()}
    return rates


def known_models(provider: str) -> list[str]:
    """The exact names of a provider that can be looked up, for forms and messages."""
    return sorted(_models(provider))


def known_providers() -> list[str]:
    """The providers of the bundled table."""
    return sorted(provider.id for provider in providers)


@lru_cache(maxsize=64)
def _models(provider_id: str) -> dict[str, types.ModelInfo]:
    """Every literal name of a provider's models; a name that two models claim is no name."""
    found: dict[str, types.ModelInfo] = {}
    disputed: set[str] = set()
    provider = next((p for p in providers if p.id == provider_id), None)
    models = provider.models if provider else []
    for model in models:
        for alias in _aliases(model.match):
            if found.setdefault(alias, model) is not model:
                disputed.add(alias)
    for alias in disputed:
        del found[alias]
    return found | {model.id: model for model in models}


def _aliases(clause: object) -> Iterator[str]:
    if isinstance(clause, types.ClauseEquals):
        yield clause.equals
    elif isinstance(clause, types.ClauseOr):
        for part in clause.or_:
            yield from _aliases(part)


def _standard(model: types.ModelInfo, at: datetime) -> types.ModelPrice | None:
    """The price in force; unlike the package, no price at all when no condition holds."""
    if isinstance(model.prices, types.ModelPrice):
        return model.prices
    for row in reversed(model.prices):
        if row.constraint is None or row.constraint.active(at):
            return row.prices
    return None


def _variants(model: types.ModelInfo, at: datetime) -> Iterator[tuple[str, types.ModelPrice]]:
    """(tier, its changes); ('', ...) for a change that depends on what no response tells."""
    seen: set[str] = set()
    for variant in model.price_variants or ():
        if variant.constraint is not None and not variant.constraint.active(at):
            continue
        if not _numbers(variant.prices) or "processing" in variant.when:
            continue
        key, tier = next(iter(variant.when.items()))
        known = len(variant.when) == 1 and key in _TIER_KEYS and tier not in seen
        seen.add(tier)
        yield tier if known else "", variant.prices


def _rates(price: types.ModelPrice) -> Rates | None:
    rates: Rates = {}
    for key, value in _numbers(price).items():
        if key in _BESIDE_THE_POINT:
            continue
        if key not in _KEYS:
            return None
        unit, per = _KEYS[key]
        factor = Decimal(MILLION // per)
        if isinstance(value, Decimal):
            steps = [(0, value)]
        else:
            steps = [(0, value.base), *((tier.start, tier.price) for tier in value.tiers)]
        rates[unit] = tiered(
            Tier(above, decimal_text(EXACT.multiply(number, factor))) for above, number in steps
        )
    return rates


def _numbers(price: types.ModelPrice) -> dict[str, Decimal | types.TieredPrices]:
    return {key: value for key, value in vars(price).items() if value is not None}


def _plain(rates: Rates) -> Rates:
    return {unit: row for unit, row in rates.items() if "@" not in unit}
