"""Stored bodies for people: cut to a byte budget on a character border, JSON laid out unparsed.

The text shown is the stored text: numbers, key order and duplicate keys stay as they were sent.
Only blanks between JSON tokens change, and the page says so.
"""

import re
from dataclasses import dataclass

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from console.untrusted import note_html, to_html

_JSON_TOKEN = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\\x00-\x1f]|\\.)*")|(?P<mark>[{}\[\],:])'
    r"|(?P<word>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null))"
)
INDENT = "  "
DEPTH_MAX = 64


@dataclass(frozen=True, slots=True)
class BodyView:
    """What a page shows of a body: `html`, how it was laid out, and how much of it there is."""

    html: SafeString
    layout: str  # 'json' | 'events' | 'text' | 'binary'
    shown_bytes: int
    total_bytes: int

    @property
    def is_cut(self) -> bool:
        return self.shown_bytes < self.total_bytes


def cut_utf8(data: bytes, *, bytes_max: int) -> bytes:
    """At most `bytes_max` bytes of UTF-8, cut on a character border (E3)."""
    if len(data) <= bytes_max:
        return data
    end = bytes_max
    while end > 0 and end > bytes_max - 4 and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]


def body_view(
    data: bytes, *, content_type: str = "", total_bytes: int | None = None, bytes_max: int
) -> BodyView:
    """The view of a body of `total_bytes`, of which `data` is the beginning."""
    total = len(data) if total_bytes is None else total_bytes
    shown = cut_utf8(data, bytes_max=bytes_max)
    try:
        text = shown.decode("utf-8")
    except UnicodeDecodeError:
        text = shown.decode("utf-8", "backslashreplace")
        return BodyView(to_html(text, block=True), "binary", len(shown), total)
    kind = content_type.split(";", 1)[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        tokens = json_tokens(text) if len(shown) == total else None
        if tokens is not None:
            return BodyView(note_html(text) + _json_html(tokens), "json", len(shown), total)
    layout = "events" if kind == "text/event-stream" else "text"
    return BodyView(to_html(text, block=True), layout, len(shown), total)


def json_tokens(text: str) -> list[tuple[str, str]] | None:
    """(kind, text) of each token: 'string', 'mark' or 'word'; None when this is no plain JSON."""
    tokens: list[tuple[str, str]] = []
    position, depth, end = 0, 0, len(text.rstrip())
    while position < end:
        match = _JSON_TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            return None
        token = match.group(match.lastgroup)
        depth += (token in "{[") - (token in "}]") if match.lastgroup == "mark" else 0
        if not 0 <= depth <= DEPTH_MAX:
            return None
        tokens.append((match.lastgroup, token))
        position = match.end()
    return tokens if tokens and depth == 0 else None


def _json_html(tokens: list[tuple[str, str]]) -> SafeString:
    out: list[str] = []
    depth = 0
    for index, (kind, token) in enumerate(tokens):
        after = tokens[index + 1][1] if index + 1 < len(tokens) else ""
        before = tokens[index - 1][1] if index else ""
        if kind == "mark" and token in "{[":
            depth += 1
            out.append(token if after in ("}", "]") else f"{token}\n{INDENT * depth}")
        elif kind == "mark" and token in "}]":
            depth -= 1
            empty = before in ("{", "[") and tokens[index - 1][0] == "mark"
            out.append(token if empty else f"\n{INDENT * depth}{token}")
        elif kind == "mark":
            out.append(f",\n{INDENT * depth}" if token == "," else ": ")
        else:
            is_key = kind == "string" and after == ":" and tokens[index + 1][0] == "mark"
            style = "key" if is_key else kind
            out.append(f'<span class="json-{style}">{to_html(token, note=False)}</span>')
    return format_html('<pre class="json" dir="ltr">{}</pre>', mark_safe("".join(out)))
