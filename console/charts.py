"""Small pictures as SVG numbers: a sparkline's path, a meter's parts. No inline style."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, PADDING = 120, 28, 2


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Two SVG paths over WIDTH x HEIGHT: the line and the area below it."""

    line: str
    area: str


def sparkline(values: Sequence[float]) -> Sparkline:
    """A line from the first value to the last; the line stands on zero or on its lowest value."""
    if not values:
        return Sparkline("", "")
    points = list(values) if len(values) > 1 else [values[0], values[0]]
    low, high = min(0, *points), max(points)
    span = (high - low) or 1
    step = WIDTH / (len(points) - 1)
    height = HEIGHT - 2 * PADDING
    places = (
        (index * step, HEIGHT - PADDING - (value - low) / span * height)
        for index, value in enumerate(points)
    )
    path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    return Sparkline(path, f"{path} L{WIDTH} {HEIGHT} L0 {HEIGHT} Z")


@dataclass(frozen=True, slots=True)
class MeterPart:
    """One stretch of a meter: its tone and where it lies, in percent of the whole."""

    tone: str
    start: str
    width: str


def meter_parts(parts: Sequence[tuple[str, int]], *, whole: int) -> list[MeterPart]:
    """Stretches of (tone, amount) side by side on a bar of `whole`; a larger sum fills the bar."""
    total = max(whole, sum(max(amount, 0) for _tone, amount in parts), 1)
    found, start = [], 0.0
    for tone, amount in parts:
        width = max(amount, 0) / total * 100
        if width:
            found.append(MeterPart(tone, f"{start:.2f}%", f"{width:.2f}%"))
        start += width
    return found
