"""Untrusted text on pages: the kernel's visible rendering, marked up, with warnings in words.

Arguments, errors, names and bodies pass through here before a person reads them.
"""

import re
import unicodedata
from functools import lru_cache
from html import escape

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from kernel.visible import PLAIN, Piece, pieces, visible

_FOREIGN_WORD = re.compile(r"(?=[^\W\d_]*[^\x00-\x7f])[^\W\d_]+")
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_HOST = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/\s@]*@)?([^/\s:?#]+)", re.IGNORECASE)
_LOOKALIKE_SCRIPTS = {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"}


def warnings(text: str) -> list[str]:
    """Sentences about what makes this text easy to misread; empty for ordinary text."""
    return [] if PLAIN.fullmatch(text) else _warnings(text, pieces(text))


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
def _is_right_to_left(char: str) -> bool:
    return char.isalpha() and unicodedata.bidirectional(char) in ("R", "AL")


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
    if not block and PLAIN.fullmatch(text):  # most names, ids and JSON tokens
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
