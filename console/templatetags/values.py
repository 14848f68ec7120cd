"""Template tags for single values: icons, states, money, times, ids, untrusted text.

A list shows hundreds of them: f-strings with `html.escape`, which cost a fifth of format_html.
"""

import json
from datetime import datetime
from functools import lru_cache
from html import escape
from typing import Any

from django import template
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from console import formats
from console.statuses import status_of
from console.untrusted import to_html, warnings
from console.words import code_text
from kernel import clock
from kernel.states import Billing
from kernel.visible import visible

register = template.Library()
ID_TAIL_CHARS = 6
NOTHING = SafeString('<span class="faint">–</span>')

HTMX_CONFIG = json.dumps(
    {
        "allowEval": False,
        "allowScriptTags": False,
        "includeIndicatorStyles": False,
        "historyCacheSize": 0,
        "refreshOnHistoryMiss": True,
        "historyRestoreAsHxRequest": False,
        "selfRequestsOnly": True,
        "attributesToSettle": ["class"],
        "timeout": 30000,
        "responseHandling": [
            {"code": "204", "swap": False},
            {"code": "[23]..", "swap": True},
            {"code": "(400|403|404|409|410|422|429|503)", "swap": True},
            {"code": "...", "swap": False, "error": True},
        ],
    }
)


@register.simple_tag
def htmx_config() -> str:
    """The content of <meta name="htmx-config">: no eval, no snapshots; error parts are shown."""
    return HTMX_CONFIG


@register.simple_tag
def icon(name: str, label: str = "") -> SafeString:
    """{% icon "check" %}: a symbol of _icons.svg. Decorative unless it has a label."""
    if label:
        return format_html(
            '<svg class="icon" role="img" aria-label="{}"><use href="#i-{}"/></svg>', label, name
        )
    return _decoration(name)


@lru_cache(maxsize=128)
def _decoration(name: str) -> SafeString:
    return format_html('<svg class="icon" aria-hidden="true"><use href="#i-{}"/></svg>', name)


@register.simple_tag
def status(name: str, reason: str = "") -> SafeString:
    """{% status request.result_state %}: icon and word; a `reason` such as no_usage in words."""
    return _badge(name, reason, get_language())


@lru_cache(maxsize=1024)  # a list shows the same few badges a hundred times
def _badge(name: str, reason: str, _language: str | None) -> SafeString:
    look = status_of(name)
    words = to_html(code_text(reason))
    extra = format_html(' <span class="badge-reason">{}</span>', words) if reason else ""
    return format_html(
        '<span class="badge tone-{}{}"{}>{}<span>{}</span>{}</span>',
        look.tone,
        " is-loud" if look.loud else "",
        format_html(' title="{}"', look.hint) if look.hint else "",
        icon(look.icon),
        look.word,
        extra,
    )


@register.simple_tag
def money(nano: int | None, none: str | Promise = "") -> SafeString:
    """{% money row.billed_nano %}: exact USD. None is a word (default "pending"), never $0."""
    if nano is None:
        return format_html('<span class="money-none">{}</span>', none or _("pending"))
    amount = formats.money(nano)
    return SafeString(  # digits and points only: nothing to escape
        f'<data class="money" value="{formats.nano_to_usd(nano)}">{amount.sign}${amount.whole}'
        f'{amount.cents}<span class="money-below">{amount.below}</span></data>'
    )


@register.simple_tag
def billed(row: Any) -> SafeString:
    """{% billed request %}: its amount, or in a word why there is none. Never $0 for pending."""
    if row.billing_state in (Billing.NOT_CHARGED, Billing.OPEN):
        word = _("not charged") if row.billing_state == Billing.NOT_CHARGED else _("open")
        return SafeString(f'<span class="faint">{escape(word)}</span>')
    return money(row.billed_nano)


@register.simple_tag
def ago(moment: datetime | None, none: str | Promise = "–") -> SafeString:
    """{% ago row.updated_at %}: relative and absolute with zone; the script keeps the age fresh."""
    if moment is None:
        return format_html('<span class="faint">{}</span>', none)
    now = clock.now()
    texts = formats.moment_texts(moment, now=now)
    return SafeString(  # times and our own words: nothing to escape
        f'<time class="ago" datetime="{texts.iso}" title="{texts.exact}">'
        f"<span data-ago>{formats.ago_text(moment, now=now)}</span>"
        f' <span class="ago-at">{texts.short}</span></time>'
    )


@register.simple_tag
def moment(value: datetime | None, none: str | Promise = "–") -> SafeString:
    """{% moment row.result_at %}: absolute to the millisecond, with zone."""
    if value is None:
        return format_html('<span class="faint">{}</span>', none)
    texts = formats.moment_texts(value, now=clock.now())
    return SafeString(f'<time datetime="{texts.iso}">{texts.exact}</time>')


@register.filter
def duration(seconds: float | None) -> str:
    """{{ seconds|duration }}: '1.24 s'."""
    return "–" if seconds is None else formats.duration_text(seconds)


@register.simple_tag(name="bytes")
def bytes_tag(size: int | None) -> SafeString:
    """{% bytes row.result_bytes %}: '1.2 KiB', the exact number in the title."""
    if size is None:
        return NOTHING
    exact = _("%(n)s bytes") % {"n": formats.count_text(size)}
    return format_html(
        '<data value="{}" title="{}">{}</data>', size, exact, formats.bytes_text(size)
    )


register.filter("words", code_text)


@register.filter
def count(value: int) -> str:
    """{{ 1204|count }}: '1,204'."""
    return formats.count_text(value)


@register.simple_tag(name="id")
def id_tag(value: str, href: str = "", short: bool = False, row: bool = False) -> SafeString:
    """{% id request.id href=url %}: monospace, copyable. `short` clips the middle by width only.

    `row` makes the link cover its table row.
    """
    if not value:
        return NOTHING
    if short and len(value) > 2 * ID_TAIL_CHARS and not warnings(value):
        head, tail = escape(value[:-ID_TAIL_CHARS]), escape(value[-ID_TAIL_CHARS:])
        text = f'<bdi class="id-clip"><span class="id-head">{head}</span><span>{tail}</span></bdi>'
    else:
        text = to_html(value)
    if href:
        kind = ' class="row-link"' if row else ""
        text = f'<a href="{escape(href)}"{kind}>{text}</a>'
    shown = escape(visible(value))
    return SafeString(f'<span class="id" title="{shown}">{text}{copy(value)}</span>')


@register.simple_tag
def copy(value: str) -> SafeString:
    """{% copy value %}: a button that copies; shown only where the script runs."""
    label = escape(_("Copy %(value)s") % {"value": visible(value[:40])})
    return SafeString(
        f'<button type="button" class="copy" data-copy="{escape(value)}" aria-label="{label}">'
        f"{_decoration('copy')}{_decoration('check')}</button>"
    )


@register.simple_tag
def escaped(text: Any, block: bool = False, none: str = "–") -> SafeString:
    """{% escaped row.name %}: THE renderer of untrusted text; full length, hidden parts visible."""
    if text is None or text == "":
        return format_html('<span class="faint">{}</span>', none)
    return to_html(str(text), block=block)


@register.simple_tag
def address(channel: str, text: str) -> SafeString:
    """{% address row.channel row.recipient %}: where it goes; a chat service's keys are not shown.

    The address of a chat service is made of its credentials.
    """
    scheme, mark, rest = text.partition("://")
    if channel == "apprise" and mark:
        hidden = _("%(n)s characters, not shown") % {"n": len(rest)}
        return format_html('{}://•••• <span class="faint">({})</span>', to_html(scheme), hidden)
    return escaped(text)
