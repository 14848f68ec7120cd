"""Numbers for people: money, bytes, durations and ages as short, exact text. Pure functions."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.utils import timezone
from django.utils.translation import gettext as _

from kernel.money import nano_to_usd

MINUS = "\u2212"


class Money(NamedTuple):
    """An exact amount in three pieces, so that a page can set the part below a cent smaller."""

    sign: str
    whole: str  # '1,204'
    cents: str  # '.50'
    below: str  # '5615' or ''

    @property
    def text(self) -> str:
        return f"{self.sign}${self.whole}{self.cents}{self.below}"


def money(nano: int) -> Money:
    """nano-USD -> exact pieces, two decimals or more, never rounded: 5615000 -> $0.005615 (A13)."""
    text = nano_to_usd(abs(nano))
    whole, _dot, fraction = text.partition(".")
    fraction = fraction.ljust(2, "0")
    return Money(
        sign=MINUS if nano < 0 else "",
        whole=f"{int(whole):,}",
        cents=f".{fraction[:2]}",
        below=fraction[2:],
    )


def count_text(value: int) -> str:
    """1204 -> '1,204'."""
    return f"{value:,}"


def bytes_text(size: int) -> str:
    """Bytes with a binary unit: 812 -> '812 B', 1229 -> '1.2 KiB'."""
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        amount /= 1024
        if amount < 1023.95 or unit == "TiB":
            break
    return f"{amount:.1f} {unit}"


def duration_text(seconds: float) -> str:
    """A span of time in one or two units: '8 ms', '1.24 s', '2 min 05 s', '3 h 12 min'."""
    sign = MINUS if seconds < 0 else ""
    seconds = abs(seconds)
    if seconds < 0.9995:
        small = seconds * 1000
        return f"{sign}{small:.0f} ms" if small >= 1 or small == 0 else f"{sign}{small:.1f} ms"
    if seconds < 9.995:
        return f"{sign}{seconds:.2f} s"
    if seconds < 59.95:
        return f"{sign}{seconds:.1f} s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{sign}{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{sign}{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{sign}{days} d {hours} h"


def ago_text(moment: datetime, *, now: datetime) -> str:
    """An age in one unit: 'just now', '12 s ago', '3 min ago', '2 h ago', '5 d ago', 'in 12 s'."""
    seconds = int((now - moment).total_seconds())
    if -2 < seconds < 2:
        return _("just now")
    span = abs(seconds)
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if span < limit:
            short = f"{span // size} {unit}"
            break
    else:
        short = f"{span // 86400:,} d"
    return (_("%(span)s ago") if seconds > 0 else _("in %(span)s")) % {"span": short}


class Moment(NamedTuple):
    """A moment in the page's zone: for machines, exact for people, and as short as today allows."""

    iso: str  # '2026-01-01T14:02:05.123456+00:00'
    exact: str  # '2026-01-01 14:02:05.123 UTC'
    short: str  # '14:02:05 UTC' today, else with the date


def moment_texts(moment: datetime, *, now: datetime) -> Moment:
    """The three texts of a moment in the page's one zone; a naive value is taken as UTC."""
    page_zone = timezone.get_current_timezone()
    shown = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(page_zone)
    text = shown.replace(tzinfo=None).isoformat(" ", "milliseconds")
    zone = shown.tzname() or "UTC"
    short = text[: len("2026-01-01 14:02:05")]
    if abs(now - shown) < timedelta(hours=20) and shown.date() == now.astimezone(page_zone).date():
        short = short[len("2026-01-01 ") :]
    return Moment(shown.isoformat(), f"{text} {zone}", f"{short} {zone}")


def absolute_text(moment: datetime, *, now: datetime, precise: bool = False) -> str:
    """'14:02:05 UTC' today, else with the date; `precise` always has the date and milliseconds."""
    texts = moment_texts(moment, now=now)
    return texts.exact if precise else texts.short
