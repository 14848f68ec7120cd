"""The one renderer of untrusted text: every code point outside an allow-list becomes an escape.

Arguments, errors, names and bodies pass through here before a person reads them (console cases 56,
74; reliability case 73). Nothing is cut: what cannot be seen is named, e.g. `⟦U+202E⟧`, and long
runs of blanks, which push the real command out of sight, are counted, e.g. `⟦120 spaces⟧`.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from html import escape

from django.utils.html import format_html
from django.utils.safestring import SafeString
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
_PLAIN = re.compile(r"[!-~]+(?: [!-~]+)*")
# Runs that need no look at each character: common letters and signs, single blanks between.
_FINE = (
    r"[!-~\u00a1-\u00ac\u00ae-\u017f\u03b1-\u03c9\u0410-\u044f\u2013\u2014\u2018-\u201d\u2026\u20ac"
    r"\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3]"
)
_TOKEN = re.compile(rf"\r\n|\n+|{_FINE}+(?: {_FINE}+)*| +|.", re.DOTALL)
_FINE_CHAR = re.compile(_FINE)
_FOREIGN_WORD = re.compile(r"(?=[^\W\d_]*[^\x00-\x7f])[^\W\d_]+")
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_HOST = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/\s@]*@)?([^/\s:?#]+)", re.IGNORECASE)
_LOOKALIKE_SCRIPTS = {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text: `text` as it is, a `break`, or an `escape` with its `title`."""

    kind: str
    text: str
    title: str = ""


def pieces(text: str) -> list[Piece]:
    """Splits text into what may be shown as it is and what must be named."""
    if _PLAIN.fullmatch(text):
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
    return Piece("escape", f"⟦U+{ord(char):04X}⟧", unicodedata.name(char, _("unnamed character")))


@lru_cache(maxsize=4096)
def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in ("Mn", "Mc", "Me")


@lru_cache(maxsize=8192)
def _looks_blank(char: str) -> bool:
    return any(low <= ord(char) <= high for low, high in _BLANK_LOOKING)


@lru_cache(maxsize=4096)
def _is_right_to_left(char: str) -> bool:
    return char.isalpha() and unicodedata.bidirectional(char) in ("R", "AL")


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
    if _PLAIN.fullmatch(text):
        return text
    return "".join(piece.text for piece in pieces(text))


def warnings(text: str) -> list[str]:
    """Sentences about what makes this text easy to misread; empty for ordinary text."""
    return [] if _PLAIN.fullmatch(text) else _warnings(text, pieces(text))


def _warnings(text: str, shown: list[Piece]) -> list[str]:
    found = []
    hidden = sum(piece.kind == "escape" for piece in shown)
    if hidden:
        found.append(
            ngettext("%(n)d hidden part made visible", "%(n)d hidden parts made visible", hidden)
            % {"n": hidden}
        )
    mixed = sorted({word for word in _FOREIGN_WORD.findall(text) if len(_scripts(word)) > 1})
    if mixed:
        found.append(
            _("mixes alphabets that look alike: %(words)s") % {"words": ", ".join(mixed[:3])}
        )
    if any(_is_right_to_left(char) for char in _RIGHT_TO_LEFT.findall(text)):
        found.append(_("has right-to-left letters: the order on screen may mislead"))
    hosts = [host for host in _HOST.findall(text) if not host.isascii()]
    if hosts:
        found.append(_("an address is not plain ASCII: %(hosts)s") % {"hosts": _punycode(hosts)})
    return found


@lru_cache(maxsize=4096)
def _script(char: str) -> str:
    name = unicodedata.name(char, "").split(" ", 1)[0]
    return name if name in _LOOKALIKE_SCRIPTS or name in ("FULLWIDTH", "MATHEMATICAL") else ""


def _scripts(word: str) -> set[str]:
    return {script for char in word if (script := _script(char))}


def _punycode(hosts: list[str]) -> str:
    shown = []
    for host in hosts[:3]:
        try:
            shown.append(host.encode("idna").decode("ascii"))
        except UnicodeError:
            shown.append(ascii(host)[1:-1])
    return ", ".join(shown)


def to_html(text: str, *, block: bool = False, note: bool = True) -> SafeString:
    """The rendering for pages: `<bdi>`, escapes marked up, and a warning in words where one is due.

    `block` keeps line breaks (in a `<pre>`); else a line break is drawn as a sign in the line.
    """
    if not block and _PLAIN.fullmatch(text):  # most names, ids and JSON tokens
        return SafeString(f'<bdi class="untrusted" dir="auto">{escape(text)}</bdi>')
    parts = pieces(text)
    shown = SafeString("".join(_piece_html(piece, block=block) for piece in parts))
    said = _note(_warnings(text, parts)) if note else ""
    if block:
        return format_html('{}<pre class="untrusted" dir="auto"><bdi>{}</bdi></pre>', said, shown)
    return format_html('<bdi class="untrusted" dir="auto">{}</bdi>{}', shown, said)


def note_html(text: str) -> SafeString:
    """The warnings as one line of markup; empty for ordinary text."""
    return _note(warnings(text))


def _note(sentences: list[str]) -> SafeString:
    notes = " · ".join(visible(one) for one in sentences)
    return format_html('<span class="untrusted-note">{}</span>', notes) if notes else SafeString("")


def _piece_html(piece: Piece, *, block: bool) -> str:
    if piece.kind == "text":
        return escape(piece.text)
    if piece.kind == "break":
        return "\n" if block else _escape_html("⏎", _("line break"))
    return _escape_html(piece.text, piece.title)


def _escape_html(text: str, title: str) -> str:
    return f'<span class="escape" title="{escape(title)}">{escape(text)}</span>'
