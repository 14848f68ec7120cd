"""Money: exact integers inside, decimal strings outside, one rounding (A13)."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.money import (
    NANO_MAX,
    format_multiplier,
    nano_to_usd,
    parse_multiplier,
    round_to_nano,
    usd_to_nano,
)


@given(st.integers(min_value=-NANO_MAX, max_value=NANO_MAX))
def test_every_amount_survives_the_way_out_and_back(nano: int) -> None:
    text = nano_to_usd(nano)
    assert usd_to_nano(text) == nano
    assert "e" not in text.lower()
    assert Decimal(text) * 1_000_000_000 == nano


@pytest.mark.parametrize(
    ("nano", "text"),
    [(0, "0"), (5_615_000, "0.005615"), (1, "0.000000001"), (-1_500_000_000, "-1.5"), (10**9, "1")],
)
def test_amounts_are_plain_decimal_strings(nano: int, text: str) -> None:
    assert nano_to_usd(nano) == text


@pytest.mark.parametrize(
    "text",
    ["", "abc", "NaN", "Infinity", "-inf", "1_000", "1,5", "0.0000000001", "1e30", "１", "0x10"],
)
def test_what_is_no_exact_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        usd_to_nano(text)


@pytest.mark.parametrize("value", [0.1, True, float("nan")])
def test_a_float_is_never_an_amount(value: float) -> None:
    with pytest.raises(ValueError, match="not a float"):
        usd_to_nano(value)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("usd", "nano"),
    [
        ("0.0000000005", 0),
        ("0.0000000015", 2),
        ("0.0000000025", 2),
        ("0.00000000050000000001", 1),
        ("-0.0000000005", 0),
    ],
)
def test_a_half_rounds_to_even(usd: str, nano: int) -> None:
    assert round_to_nano(Decimal(usd)) == nano


@given(
    st.decimals(min_value=0, max_value=10**6, places=20),
    st.integers(min_value=0, max_value=10**9),
)
def test_the_one_rounding_is_never_more_than_half_a_nano_away(usd: Decimal, factor: int) -> None:
    exact = Fraction(usd) * factor * 1000
    assert abs(round_to_nano(usd, multiplier=factor) - exact) <= Fraction(1, 2)


def test_an_amount_beyond_the_column_is_an_error_and_no_wrap() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        round_to_nano(Decimal(10) ** 12)
    with pytest.raises(ValueError):
        usd_to_nano("9223372036.854775808")
    assert usd_to_nano("9223372036.854775807") == NANO_MAX


@given(st.integers(min_value=0, max_value=1_000_000_000))
def test_every_multiplier_survives_the_way_out_and_back(millionths: int) -> None:
    assert parse_multiplier(format_multiplier(millionths)) == millionths


@pytest.mark.parametrize("text", ["", "-1", "1000.000001", "0.0000001", "nan", "1e2000", "x"])
def test_what_is_no_multiplier_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_multiplier(text)
