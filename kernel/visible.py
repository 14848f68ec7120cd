"""What people read of foreign text: every code point outside an allow-list becomes an escape.

Pages, mails and chat messages show it by this one rule (console cases 56, 74; reliability case 73).
Nothing is cut: what cannot be seen is named, e.g. `⟦U+202E⟧`, and long runs of blanks, which push
the real command out of sight, are counted, e.g. `⟦120 spaces⟧`.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

BLANKS_MAX = 16  # a longer run of spaces inside a line is counted, not shown
INDENT_MAX = 64  # at the start of a line
LINE_BREAKS_MAX = 4  # more line breaks in a row are counted, not shown
MARKS_MAX = 3  # combining marks on one base character

_SHOWN_CATEGORIES = frozenset(
    "Lu Ll Lt Lm Lo Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So".split()  # noqa: SIM905
)
# Letters, symbols and marks that Unicode calls visible or ignorable but that draw nothing.
_BLANK_LOOKING = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xFFFC, 0xFFFC),
    (0x16FE4, 0x16FE4),
    (0xE0100, 0xE01EF),
)
PLAIN = re.compile(r"[!-~]+(?: [!-~]+)*")
# Runs that need no look at each character: common letters and signs, single blanks between.
_FINE = (
    r"[!-~\u00a1-\u00ac\u00ae-\u017f\u03b1-\u03c9\u0410-\u044f\u2013\u2014\u2018-\u201d\u2026\u20ac"
    r"\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3]"
)
_TOKEN = re.compile(rf"\r\n|\n+|{_FINE}+(?: {_FINE}+)*| +|.", re.DOTALL)
_FINE_CHAR = re.compile(_FINE)


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text: `text` as it is, a `break`, or an `escape` with its `title`."""

    kind: str
    text: str
    title: str = ""


def pieces(text: str) -> list[Piece]:
    """Splits text into what may be shown as it is and what must be named."""
    if PLAIN.fullmatch(text):
        return [Piece("text", text)]
    found: list[Piece] = []
    line_start, base, marks = True, "", 0
    for token in _TOKEN.findall(text):
        first = token[0]
        if first == "\n" or token == "\r\n":
            found += _line_breaks(token)
            line_start, base, marks = True, "", 0
            continue
        if first == " ":
            limit = INDENT_MAX if line_start else BLANKS_MAX
            found.append(Piece("text", token) if len(token) <= limit else _counted(token))
            line_start, base, marks = False, "", 0
            continue
        marks = marks + 1 if _is_mark(first) else 0
        if _FINE_CHAR.match(first) or _may_show(first, base=base, marks=marks):
            found.append(Piece("text", token))
            base = base if marks else token[-1]
        else:
            found.append(_escape(first))
            base = ""
        line_start = False
    return _joined(found)


def _line_breaks(token: str) -> list[Piece]:
    if token == "\r\n":
        return [_escape("\r"), Piece("break", "\n")]
    if len(token) <= LINE_BREAKS_MAX:
        return [Piece("break", "\n")] * len(token)
    title = ngettext("%(n)d line break", "%(n)d line breaks", len(token)) % {"n": len(token)}
    return [Piece("escape", f"⟦{title}⟧", title), Piece("break", "\n")]


def _counted(token: str) -> Piece:
    title = ngettext("%(n)d space", "%(n)d spaces", len(token)) % {"n": len(token)}
    return Piece("escape", f"⟦{title}⟧", title)


def _escape(char: str) -> Piece:
    title = unicodedata.name(char, "") or _("unnamed character")
    return Piece("escape", f"⟦U+{ord(char):04X}⟧", title)


@lru_cache(maxsize=4096)
def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in ("Mn", "Mc", "Me")


@lru_cache(maxsize=8192)
def _looks_blank(char: str) -> bool:
    return any(low <= ord(char) <= high for low, high in _BLANK_LOOKING)


def _may_show(char: str, *, base: str, marks: int) -> bool:
    if char == "\ufe0f":  # "draw the character before me as an emoji": harmless after a symbol only
        return bool(base) and unicodedata.category(base) == "So"
    if _looks_blank(char):
        return False
    if marks:
        return bool(base) and marks <= MARKS_MAX and unicodedata.category(char) != "Me"
    return unicodedata.category(char) in _SHOWN_CATEGORIES


def _joined(found: list[Piece]) -> list[Piece]:
    """Joins neighbouring stretches of plain text."""
    result: list[Piece] = []
    for piece in found:
        if result and piece.kind == "text" and result[-1].kind == "text":
            result[-1] = Piece("text", result[-1].text + piece.text)
        else:
            result.append(piece)
    return result


def visible(text: str) -> str:
    """The same rendering as plain text, for channels without markup."""
    if PLAIN.fullmatch(text):
        return text
    return "".join(piece.text for piece in pieces(text))
