"""Money: an integer number of nano-USD inside, a decimal string of USD outside (A13)."""

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext

NANO_PER_USD = 1_000_000_000
MULTIPLIER_ONE = 1_000_000  # a multiplier is an integer number of millionths
NANO_MAX = 2**63 - 1  # a BIGINT column

_EXACT = Context(prec=120, rounding=ROUND_HALF_EVEN)
# Bounded, so that every number that passes is exact in _EXACT; no nan, no 1_000, no other digits.
_NUMBER = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?")


def usd_to_nano(text: str | Decimal | int) -> int:
    """Exact decimal USD -> nano-USD.

    ValueError for text that is no exact, finite amount in range.
    """
    if isinstance(text, bool | float):
        raise ValueError("an amount is a decimal string, not a float")
    amount = _number(str(text), what="an amount in USD")
    with localcontext(_EXACT):
        nano = amount * NANO_PER_USD
        if nano != nano.to_integral_value():
            raise ValueError("an amount has at most 9 decimals")
        if abs(nano) > NANO_MAX:
            raise ValueError("an amount this large cannot be stored")
        return int(nano)


def nano_to_usd(nano: int) -> str:
    """nano-USD -> plain decimal string of USD, without trailing zeros: 5615000 -> '0.005615'."""
    sign, value = ("-", -nano) if nano < 0 else ("", nano)
    whole, fraction = divmod(value, NANO_PER_USD)
    tail = f"{fraction:09d}".rstrip("0")
    return f"{sign}{whole}.{tail}" if tail else f"{sign}{whole}"


def round_to_nano(usd: Decimal, *, multiplier: int = MULTIPLIER_ONE) -> int:
    """Exact USD x multiplier (millionths) -> nano-USD. The one rounding: half-even (A13)."""
    # The context's own operations: entering it costs more than they do.
    millionths = _EXACT.multiply(_EXACT.multiply(usd, NANO_PER_USD), multiplier)
    nano = int(_EXACT.to_integral_value(_EXACT.divide(millionths, MULTIPLIER_ONE)))
    if abs(nano) > NANO_MAX:
        raise ValueError("the amount does not fit a ledger column")
    return nano


def parse_multiplier(text: str) -> int:
    """'1.25' -> 1250000 millionths. ValueError outside 0..1000 or finer than a millionth."""
    value = _number(text, what="a multiplier")
    if value < 0 or value > 1000:
        raise ValueError("a multiplier lies between 0 and 1000")
    with localcontext(_EXACT):
        scaled = value * MULTIPLIER_ONE
    if scaled != scaled.to_integral_value():
        raise ValueError("a multiplier has at most 6 decimals")
    return int(scaled)


def format_multiplier(millionths: int) -> str:
    """1250000 -> '1.25'."""
    whole, fraction = divmod(millionths, MULTIPLIER_ONE)
    tail = f"{fraction:06d}".rstrip("0")
    return f"{whole}.{tail}" if tail else str(whole)


def _number(text: str, *, what: str) -> Decimal:
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError(f"not {what}: {text[:40]!r}")
    return Decimal(text.strip())
