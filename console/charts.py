"""Pictures as SVG numbers: a sparkline, the parts of a meter, bars over time. No inline style."""

from collections.abc import Callable, Sequence
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


BAR_HEIGHT, BAR_SLOT, BAR_WIDTH = 96, 10, 8  # of a bar chart's own square units


@dataclass(frozen=True, slots=True)
class Series:
    """One kind of bar: its word, its tone and one whole number a bucket."""

    label: str
    tone: str
    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle, with the sentence that a pointer shows."""

    x: int
    y: str
    height: str
    tone: str
    title: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Stacked bars over time and the numbers they stand for; `show` words one number.

    `buckets` name the stretches of time from old to new, `note` says what is counted.
    """

    title: str
    note: str
    buckets: Sequence[str]
    series: Sequence[Series]
    show: Callable[[int], str]

    @property
    def sums(self) -> list[int]:
        """The height of each stack."""
        return [sum(values) for values in zip(*(one.values for one in self.series), strict=True)]

    @property
    def is_empty(self) -> bool:
        return not any(self.sums)

    @property
    def top(self) -> str:
        """The highest stack in words: the scale of the picture."""
        return self.show(max(self.sums, default=0))

    @property
    def width(self) -> int:
        return len(self.buckets) * BAR_SLOT

    @property
    def bars(self) -> list[Bar]:
        """The rectangles; a value above zero is always visible."""
        highest, found = max(self.sums, default=0) or 1, []
        for place, bucket in enumerate(self.buckets):
            floor = float(BAR_HEIGHT)
            for one in self.series:
                value = one.values[place]
                if value <= 0:
                    continue
                height = max(value / highest * BAR_HEIGHT, 1.5)
                floor -= height
                title = f"{bucket}: {one.label} {self.show(value)}"
                x = place * BAR_SLOT + (BAR_SLOT - BAR_WIDTH) // 2
                found.append(Bar(x, f"{max(floor, 0):.1f}", f"{height:.1f}", one.tone, title))
        return found

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """The table beside the picture, newest first: bucket, then each series' number."""
        return [
            (bucket, [self.show(one.values[place]) for one in self.series])
            for place, bucket in reversed(list(enumerate(self.buckets)))
            if any(one.values[place] for one in self.series)
        ]

    @property
    def label(self) -> str:
        """What the picture shows, for who does not see it."""
        sums = [f"{one.label} {self.show(sum(one.values))}" for one in self.series]
        return f"{self.title}. {', '.join(sums)}."
