"""Pricing: exact lines, strict look-ups, holds that bound, refusals instead of guesses."""

import ast
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.conf import override
from kernel.errors import InvalidInput
from kernel.money import MULTIPLIER_ONE, nano_to_usd
from kernel.usage import pricing
from kernel.usage.metering import Metering
from kernel.usage.pricing import PriceSnapshot, Tier, parse_rates, price
from kernel.usage.units import UNITS

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def snapshot(**rates: Any) -> PriceSnapshot:
    named = {key.replace("__", "@"): value for key, value in rates.items()}
    return PriceSnapshot(
        "operator", "1", "openai", "m", parse_rates({"input": "0", "output": "0", **named})
    )


def used(tier: str | None = None, **meters: int) -> Metering:
    return Metering({"input": 0, "output": 0, **meters}, service_tier=tier)


# --- charges ----------------------------------------------------------------------------------


def test_a_charge_is_the_exact_sum_of_its_lines():
    found = price(snapshot(input="2.5", output="10"), used(input=86, output=300))
    assert [(x.unit, x.count, x.usd_per_million, x.amount_usd) for x in found.lines] == [
        ("input", 86, "2.5", "0.000215"),
        ("output", 300, "10", "0.003"),
    ]
    assert found.reference_usd == Decimal("0.003215")


def test_a_reported_zero_costs_nothing_and_has_no_lines():
    found = price(snapshot(input="2.5", output="10"), used())
    assert (found.lines, found.reference_usd, found.reason) == ((), Decimal(0), None)


def test_a_free_rate_is_a_rate():
    found = price(snapshot(), used(input=5, output=5))
    assert (found.reference_usd, len(found.lines), found.reason) == (Decimal(0), 2, None)


def test_metering_with_a_reason_is_never_priced():
    refused = used(input=5).refused("partial_usage", "cut")
    found = price(snapshot(input="1"), refused)
    assert (found.lines, found.reference_usd, found.reason) == ((), None, "partial_usage")
    assert price(None, used(input=5)).reason == "unpriced"
    assert price(None, refused).reason == "partial_usage"


@pytest.mark.parametrize(
    "unit",
    sorted(set(UNITS) - set(pricing.COVERED_BY) - {"input", "output", "requests"}),
)
def test_a_used_unit_without_a_rate_is_unpriced_and_has_no_amount(unit: str):
    found = price(snapshot(input="1", output="2"), used(input=10, **{unit: 1}))
    assert (found.reference_usd, found.reason) == (None, "unpriced_unit")
    assert unit in found.detail
    assert [line.unit for line in found.lines] == ["input"]


def test_an_input_rate_covers_images_and_an_output_rate_covers_reasoning_unless_listed():
    metering = used(input_image=1_000_000, output_reasoning=1_000_000)
    assert price(snapshot(input="1", output="2"), metering).reference_usd == 3
    listed = snapshot(input="1", output="2", input_image="5", output_reasoning="7")
    assert price(listed, metering).reference_usd == 12


def test_a_fee_per_request_is_a_line_of_its_own():
    found = price(snapshot(input="1", requests="12000"), used(input=1_000_000))
    assert found.reference_usd == Decimal("1.012")
    assert found.lines[-1].unit == "requests"


def test_all_input_tokens_decide_the_step_of_the_whole_request():
    steps = [[0, "1"], [100, "2"], [200, "4"]]
    card = snapshot(input=steps, input_cached=[[0, "0.1"], [100, "0.2"]])
    at_border = price(card, used(input=60, input_cached=40))
    above = price(card, used(input=60, input_cached=41))
    assert [line.usd_per_million for line in at_border.lines] == ["1", "0.1"]
    assert [line.usd_per_million for line in above.lines] == ["2", "0.2"]
    assert price(card, used(input=201)).lines[0].usd_per_million == "4"


@pytest.mark.parametrize("tier", [None, "", "default", "standard", "auto"])
def test_the_standard_tiers_are_priced_at_the_standard_rates(tier: str | None):
    card = snapshot(input="1", input__priority="2", output__priority="9")
    assert price(card, used(tier, input=1_000_000)).reference_usd == 1


def test_another_tier_needs_rates_of_its_own():
    card = snapshot(input="1", input_cached="0.5", input__priority="2")
    assert price(card, used("priority", input=1_000_000)).reference_usd == 2
    assert price(card, used("flex", input=1)).reason == "unpriced_tier"
    assert price(card, used("priority", input=1, input_cached=1)).reason == "unpriced_unit"
    assert price(card, used("priority", output=1)).reason == "unpriced_unit"


@given(
    st.dictionaries(st.sampled_from(sorted(UNITS)), st.integers(0, 10**9), max_size=8),
    st.decimals(0, 1000, places=12, allow_nan=False),
    st.integers(0, 1_000 * MULTIPLIER_ONE),
)
def test_amounts_are_exact_and_rounded_once(meters: dict[str, int], rate: Decimal, multiplier: int):
    meters.pop("requests", None)
    rates = {unit: f"{rate:.12f}" for unit in UNITS if unit != "requests"}
    card = PriceSnapshot("operator", "1", "p", "m", parse_rates(rates, confirm=True))
    found = price(card, Metering(meters))
    exact = Decimal(sum(meters.values())) * rate / 1_000_000
    assert found.reference_usd == exact
    nano = pricing.charge_nano(exact, multiplier)
    assert abs(nano - exact * 1000 * multiplier) <= Decimal("0.5")


def test_half_a_nano_is_rounded_to_the_even_neighbour():
    assert pricing.charge_nano(Decimal("0.0000000005"), MULTIPLIER_ONE) == 0
    assert pricing.charge_nano(Decimal("0.0000000015"), MULTIPLIER_ONE) == 2
    assert pricing.charge_nano(Decimal("0.000000001"), MULTIPLIER_ONE // 2) == 0
    assert pricing.charge_nano(Decimal("0.000000001"), 2_500_000) == 2


# --- the explanation --------------------------------------------------------------------------


def test_a_charge_is_explained_from_its_stored_lines_alone():
    card = snapshot(input="2.5", input_cached="1.25", output="10")
    charge = price(card, used(input=86, input_cached=1920, output=300))
    stored = pricing.lines_text(charge.lines)
    assert pricing.explain(pricing.lines_from_text(stored), multiplier=1_333_333) == [
        "input: 86 x $2.5 / 1,000,000 = $0.000215",
        "input_cached: 1920 x $1.25 / 1,000,000 = $0.0024",
        "output: 300 x $10 / 1,000,000 = $0.003",
        "reference cost: $0.005615",
        "multiplier: $0.005615 x 1.333333 = $0.007486664795",
        "rounded once, half-even, to 9 decimals: $0.007486665",
    ]


def test_the_explanation_of_a_charge_of_nothing_is_zero():
    assert pricing.explain((), multiplier=MULTIPLIER_ONE)[-1].endswith("$0")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[["input",1]]', "[[1,2,3,4]]"])
def test_damaged_lines_are_refused(text: str):
    with pytest.raises(ValueError, match=r".*"):
        pricing.lines_from_text(text)


def test_the_gap_to_the_cost_a_provider_reports_is_shown_not_charged():
    assert pricing.reported_gap(Decimal("0.5"), "0.75") == Decimal("0.25")
    assert pricing.reported_gap(Decimal("0.5"), None) is None


# --- holds ------------------------------------------------------------------------------------


def test_a_hold_takes_the_highest_rates_and_rounds_up():
    card = snapshot(input="1", input_cache_write="1.25", output="2", requests="1000000")
    held = pricing.hold_nano(card, body_bytes=1000, max_output_tokens=10, multiplier=MULTIPLIER_ONE)
    assert held == 1000 * 1250 + 10 * 2000 + 10**9
    tiny = snapshot(input="0.0015")
    assert pricing.hold_nano(tiny, body_bytes=1, max_output_tokens=0, multiplier=1_000_000) == 2
    assert pricing.hold_nano(tiny, body_bytes=1, max_output_tokens=0, multiplier=1) == 1


def test_a_hold_knows_which_steps_a_body_of_this_size_can_reach():
    card = snapshot(input=[[0, "1"], [1000, "5"]], output=[[0, "1"], [1000, "5"]])
    hold = {"max_output_tokens": 10, "multiplier": MULTIPLIER_ONE}
    assert pricing.hold_nano(card, body_bytes=1000, **hold) == 1_010_000
    assert pricing.hold_nano(card, body_bytes=1001, **hold) == 5_055_000


def test_a_hold_covers_the_tier_that_was_asked_for():
    card = snapshot(input="1", output="1", input__priority="3", output__priority="2")
    hold = {"body_bytes": 100, "max_output_tokens": 100, "multiplier": MULTIPLIER_ONE}
    assert pricing.hold_nano(card, **hold) == 200_000
    assert pricing.hold_nano(card, **hold, service_tier="priority") == 500_000


@given(
    st.dictionaries(
        st.sampled_from(sorted(unit for unit in UNITS if unit.startswith(("input", "output")))),
        st.integers(0, 300),
    ),
    st.lists(st.integers(0, 10**7), min_size=6, max_size=6),
    st.integers(0, 3 * MULTIPLIER_ONE),
)
def test_a_charge_within_the_bounds_never_passes_its_hold(
    meters: dict[str, int], micro: list[int], multiplier: int
):
    steps = [[0, f"{micro[0]}"], [500, f"{micro[1]}"]]
    rates: dict[str, Any] = {unit: f"{micro[2 + len(unit) % 4]}" for unit in UNITS}
    rates |= {"input": steps, "output": steps}
    card = PriceSnapshot("operator", "1", "p", "m", parse_rates(rates, confirm=True))
    metering = Metering(meters)
    charge = price(card, metering)
    assert charge.reference_usd is not None
    held = pricing.hold_nano(
        card,
        body_bytes=metering.input_tokens,
        max_output_tokens=metering.output_tokens,
        multiplier=multiplier,
    )
    assert pricing.charge_nano(charge.reference_usd, multiplier) <= held


# --- the operator's form ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rates", "field"),
    [
        ({}, "rates"),
        ([], "rates"),
        ({"input": "1"}, "rates.output"),
        ({"output": "1"}, "rates.input"),
        ({"tea": "1"}, "rates.tea"),
        ({5: "1"}, "rates.5"),
        ({"input@": "1"}, "rates.input@"),
        ({"input@a@b": "1"}, "rates.input@a@b"),
        *[
            ({"input": bad, "output": "1"}, "rates.input")
            for bad in [1, 1.5, None, True, "", "-1", "1e3", "NaN", "1,5", " 1", "1" * 11, "٣"]
        ],
        *[
            ({"input": bad, "output": "1"}, "rates.input")
            for bad in [[], [[5, "1"]], [[0, "1"], [0, "2"]], [[0]], [["0", "1"]], [[0, 1]]]
        ],
        ({"input": [[n, "1"] for n in range(9)], "output": "1"}, "rates.input"),
        ({"input": [[0, "1"], [-1, "2"]], "output": "1"}, "rates.input"),
    ],
    ids=repr,
)
def test_a_bad_rate_names_its_field(rates: Any, field: str):
    with pytest.raises(InvalidInput) as caught:
        parse_rates(rates)
    assert caught.value.field == field


def test_rates_are_stored_in_one_canonical_form():
    rates = parse_rates({"output": "10.50", "input": [[200, "2.0"], [0, "01"]]})
    assert rates == {"output": (Tier(0, "10.5"),), "input": (Tier(0, "1"), Tier(200, "2"))}
    assert pricing.rates_text(rates) == '{"input":[[0,"1"],[200,"2"]],"output":"10.5"}'


@pytest.mark.parametrize("rate", ["8000000", "1000.01", "0.000008", "0.0004999"])
def test_an_implausible_rate_must_be_confirmed(rate: str):
    rates = {"input": rate, "output": "1"}
    with pytest.raises(InvalidInput) as caught:
        parse_rates(rates)
    assert (caught.value.error_code, caught.value.field) == ("implausible_rate", "rates.input")
    assert parse_rates(rates, confirm=True)["input"] == (Tier(0, rate),)
    with override(rate_usd_per_million_max=10**9, rate_microusd_per_million_min=0):
        assert parse_rates(rates)


def test_free_rates_and_searches_are_plausible():
    parse_rates({"input": "0", "output": "1000", "web_search_requests": "35000"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format":2}',
        '{"format":1,"source":"s","version":"1","provider":"p","model":"m"}',
        '{"format":1,"source":"s","version":"1","provider":"p","model":"m","rates":{"input":1}}',
        '{"format":1,"source":1,"version":"1","provider":"p","model":"m","rates":{}}',
        "[" * 30_000,
        " " * 40_000,
    ],
    ids=lambda text: text[:40],
)
def test_a_damaged_snapshot_is_refused(text: str):
    with pytest.raises(ValueError, match=r".*"):
        PriceSnapshot.from_text(text)


def test_pure_modules_know_no_database_network_or_clock():
    folder = Path(pricing.__file__).parent
    pure = "dialects json_text metering price_data pricing rates request_body sse streams units"
    for name in pure.split():
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            names = [alias.name for alias in getattr(node, "names", [])]
            module = getattr(node, "module", "") or ""
            if isinstance(node, ast.Import | ast.ImportFrom):
                roots = {(module or one).split(".")[0] for one in names}
                assert not roots & {"django", "httpx", "httpx2", "socket", "time", "asyncio"}
            assert getattr(node, "attr", "") not in ("now", "utcnow", "today"), name
            assert not (isinstance(node, ast.Constant) and type(node.value) is float), name


def test_small_amounts_keep_their_digits():
    assert nano_to_usd(24_400) == "0.0000244"
