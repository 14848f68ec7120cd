"""Template tags for whole parts: forms, buttons, callouts, facts, stats, lists, timelines."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django import template
from django.template import Context
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.html import conditional_escape, format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString, mark_safe

from console import charts
from console.access import Ability, ability
from console.act_steps import act_steps
from console.bodies import BodyView
from console.filters import Chosen, Field
from console.navigation import address_of
from console.paging import ORDERS, IdPage
from console.preferences import taste
from console.responses import Problem, new_form_key
from console.templatetags.values import ago, icon
from console.timeline import Step, place

register = template.Library()


@register.simple_tag(takes_context=True)
def can(context: Context, permission: str) -> Ability:
    """{% can "operate" as may %}: truthy when allowed; `may.reason` says why not."""
    return ability(context["request"].user, permission)


@register.simple_tag(takes_context=True)
def button(
    context: Context,
    label: str | Promise,
    *,
    href: str = "",
    icon: str = "",
    kind: str = "",
    permission: str = "",
    unavailable: str | Promise = "",
    name: str = "",
    value: str = "",
) -> SafeString:
    """{% button _("Cancel…") href=url permission="operate" unavailable=why %}.

    A link with `href`, else a submit button. Disabled with its reason in words when the person
    lacks `permission` or `unavailable` says why. `kind`: primary, danger, quiet.
    """
    reason = str(unavailable)
    if permission:
        reason = ability(context["request"].user, permission).reason or reason
    return button_html(
        label, href=href, icon_name=icon, kind=kind, reason=reason, name=name, value=value
    )


def button_html(
    label: str | Promise,
    *,
    href: str = "",
    icon_name: str = "",
    kind: str = "",
    reason: str = "",
    name: str = "",
    value: str = "",
) -> SafeString:
    """The button, for tags that know already why it may not be pressed (`reason`, '' = it may).

    It ends in a line break: the gap between two buttons of one line.
    """
    css = conditional_escape(f"button is-{kind}" if kind else "button")
    symbol = icon(icon_name) if icon_name else ""
    inside = f"{symbol}<span>{conditional_escape(str(label))}</span>"
    if reason:
        role = "link" if href else "button"
        return SafeString(
            f'<span class="explain"><span class="{css}" role="{role}" aria-disabled="true"'
            f' tabindex="0">{inside}</span>'
            f'<span class="explain-text">{conditional_escape(reason)}</span></span>\n'
        )
    if href:
        return SafeString(f'<a class="{css}" href="{conditional_escape(href)}">{inside}</a>\n')
    named = format_html(' name="{}" value="{}"', name, value) if name else ""
    return SafeString(f'<button class="{css}"{named}>{inside}</button>\n')


@register.inclusion_tag("console/parts/field.html")
def field(bound: Any) -> dict[str, Any]:
    """{% field form.note %}: label, hint, widget and errors, tied together for screen readers."""
    hint_id = f"{bound.auto_id}_hint" if bound.help_text else ""
    error_id = f"{bound.auto_id}_error" if bound.errors else ""
    attrs = {"aria-describedby": " ".join(filter(None, (hint_id, error_id)))}
    if bound.errors:
        attrs["aria-invalid"] = "true"
    if not attrs["aria-describedby"]:
        del attrs["aria-describedby"]
    kind = type(bound.field.widget).__name__
    return {
        "bound": bound,
        "widget": bound.as_widget(attrs=attrs),
        "is_check": kind == "CheckboxInput",
        "is_group": kind in ("RadioSelect", "CheckboxSelectMultiple"),
        "hint_id": hint_id,
        "error_id": error_id,
    }


@register.simple_block_tag(takes_context=True)
def act(
    context: Context,
    content: str,
    *,
    action: str,
    target: str = "",
    version: Any = None,
    css: str = "form",
) -> SafeString:
    """{% act action=url target="#resolve" version=row.version %}...{% endact %}: a form that acts.

    Carries the CSRF token, a fresh idempotency key and the row's version; is sent once. With
    `repeat_key` in the context it keeps that key: the answer to the first try was lost.
    """
    live = (
        format_html(
            'hx-post="{}" hx-target="{}" hx-swap="innerHTML" hx-sync="this:drop"', action, target
        )
        if target
        else ""
    )
    hidden = format_html(
        '<input type="hidden" name="csrfmiddlewaretoken" value="{}">'
        '<input type="hidden" name="form_key" value="{}">',
        context.get("csrf_token", ""),
        context.get("repeat_key") or new_form_key(),
    )
    if version is not None:
        hidden += format_html('<input type="hidden" name="version" value="{}">', version)
    return format_html(
        '<form class="{}" method="post" action="{}" data-once {}>{}{}</form>',
        css,
        action,
        live,
        hidden,
        mark_safe(content),
    )


CALLOUT_ICONS = {"info": "info", "ok": "check-circle", "unknown": "question"}


@register.simple_block_tag
def callout(content: str, tone: str = "info", title: str | Promise = "") -> SafeString:
    """{% callout "warn" title=_("…") %}...{% endcallout %}: info, ok, warn, danger or unknown."""
    heading = format_html('<p class="callout-title">{}</p>', title) if title else ""
    return format_html(
        '<div class="callout tone-{}" role="{}">{}<div class="callout-body">{}{}</div></div>',
        tone,
        "alert" if tone == "danger" else "note",
        icon(CALLOUT_ICONS.get(tone, "alert")),
        heading,
        mark_safe(content),
    )


@register.inclusion_tag("console/parts/problem.html")
def problem(problem: Problem | None) -> dict[str, Any]:
    """{% problem problem %}: a refused act in words, focused after a swap; nothing when None."""
    facts = []
    for name, value in (problem.facts if problem else {}).items():
        facts.append((name.replace("_", " "), value, isinstance(value, datetime)))
    return {"problem": problem, "facts": facts}


@register.simple_block_tag
def fact(content: str, label: str | Promise, hint: str | Promise = "") -> SafeString:
    """{% fact _("Service") %}...{% endfact %}: one row of a `<dl class="facts">`."""
    note = format_html('<span class="fact-hint">{}</span>', hint) if hint else ""
    return format_html(
        '<div class="fact"><dt>{}</dt><dd>{}{}</dd></div>', label, mark_safe(content.strip()), note
    )


@register.simple_block_tag
def stat(
    content: str,
    label: str | Promise,
    *,
    href: str = "",
    tone: str = "",
    trend: Sequence[float] | None = None,
    trend_label: str = "",
    note: str | Promise = "",
) -> SafeString:
    """{% stat _("In flight") note=_("…") trend=values trend_label=_("…") %}12{% endstat %}."""
    name = format_html('<a class="cover" href="{}">{}</a>', href, label) if href else label
    return format_html(
        '<div class="stat{}"><p class="stat-label">{}</p><p class="stat-value">{}</p>{}{}</div>',
        f" tone-{tone}" if tone else "",
        name,
        mark_safe(content.strip()),
        format_html('<p class="stat-note">{}</p>', note) if note else "",
        spark(trend, trend_label) if trend is not None else "",
    )


@register.simple_tag
def spark(values: Sequence[float] | None, label: str = "") -> SafeString:
    """{% spark values _("Requests per minute, last hour") %}: a small line, described in words."""
    shape = charts.sparkline(values or [])
    return format_html(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}">'
        '<path class="spark-area" d="{}"/><path class="spark-line" d="{}"/></svg>',
        charts.WIDTH,
        charts.HEIGHT,
        label,
        shape.area,
        shape.line,
    )


@register.simple_tag
def meter(label: str, whole: int, **parts: int) -> SafeString:
    """{% meter _("…") cap accent=consumed warn=held %}: amounts side by side on one bar."""
    drawn = [
        format_html(
            '<rect class="tone-{}" x="{}" width="{}" height="100%"/>',
            part.tone,
            part.start,
            part.width,
        )
        for part in charts.meter_parts(list(parts.items()), whole=whole)
    ]
    return format_html(
        '<svg class="meter" role="img" aria-label="{}">{}</svg>', label, mark_safe("".join(drawn))
    )


@register.inclusion_tag("console/parts/chart.html")
def chart(chart: charts.Chart, name: str) -> dict[str, Any]:
    """{% chart outcomes "outcomes" %}: bars over time and their table; `name` is the id."""
    return {"chart": chart, "name": name}


@register.inclusion_tag("console/parts/progress.html")
def progress(done: int, total: int, label: str | Promise) -> dict[str, Any]:
    """{% progress done total _("…") %}: a bar with its numbers; total 0 = extent not known yet."""
    percent = min(100, done * 100 // total) if total else None
    return {"done": done, "total": total, "label": label, "percent": percent}


@register.inclusion_tag("console/parts/timeline.html")
def timeline(steps: Sequence[Step]) -> dict[str, Any]:
    """{% timeline steps %}: vertical steps with the durations between them."""
    return {"steps": place(steps)}


@register.inclusion_tag("console/parts/timeline.html")
def acts_timeline(acts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """{% acts_timeline acts %}: acts [{row (AuditRow), text}], newest first, as a timeline."""
    return {"steps": place(act_steps(acts))}


@register.inclusion_tag("console/parts/body.html")
def body(
    view: BodyView, title: str | Promise, download: str = "", opened: bool = True
) -> dict[str, Any]:
    """{% body view _("Answer") %}: a stored body within its byte budget; its true size in words."""
    return {"view": view, "title": title, "download": download, "opened": opened}


@register.inclusion_tag("console/parts/filters.html", takes_context=True)
def filters(context: Context, chosen: Chosen, target: str = "") -> dict[str, Any]:
    """{% filters chosen target="#list" %}: the filter bar and its chips; a plain GET form."""
    fields = chosen.fields
    moments = [one for one in fields if one.filter.kind == "moment"]
    return {
        "fields": [one for one in fields if one.filter.kind != "moment"],
        "moments": moments,
        "is_timed": any(one.value for one in moments),
        "target": target,
        "action": context["request"].path,
        "zone": timezone.get_current_timezone_name(),
    }


@register.simple_tag
def options(field: Field) -> SafeString:
    """{% options field %}: the options of a filter's <select>; a list of states has thirty."""
    parts = []
    for value, label in getattr(field.filter, "choices", ()):
        selected = " selected" if value == field.value else ""
        shown = conditional_escape(str(label))
        parts.append(f'<option value="{conditional_escape(value)}"{selected}>{shown}</option>')
    return SafeString("".join(parts))


@register.inclusion_tag("console/parts/chips.html", takes_context=True)
def chips(context: Context, chosen: Chosen) -> dict[str, Any]:
    """{% chips chosen %}: the person's saved views of this list, then the filters that are set."""
    request = context["request"]
    screen, query = request.resolver_match.url_name, chosen.query()
    views = [one for one in taste(request).views if one.screen == screen]
    may_save = chosen.is_filtered and all(one.query != query for one in views)
    return {
        "chosen": chosen,
        "views": views,
        "query": query,
        "path": request.path,
        "edit": address_of("preferences"),
        "save": _save_address(screen, query) if may_save else "",
    }


def _save_address(screen: str, query: str) -> str:
    page = address_of("view-new")
    return f"{page}?{urlencode({'screen': screen, 'query': query})}" if page else ""


@register.inclusion_tag("console/parts/pager.html")
def pager(page: IdPage, chosen: Chosen, target: str = "", total: Any = None) -> dict[str, Any]:
    """{% pager page chosen %}: its order, first, newer, older; no page numbers."""
    return {
        "page": page,
        "target": target,
        "total": total,
        "order": ORDERS[page.order_by][1],
        "first": chosen.query() or "?",
        "newer": chosen.query(before=page.newer) if page.newer else "",
        "older": chosen.query(after=page.older) if page.older else "",
    }


@register.simple_tag
def sorted_by(page: IdPage, name: str) -> SafeString:
    """<th{% sorted_by page "created_at" %}>: says so when this column is what orders the list."""
    return mark_safe(' aria-sort="descending"' if page.order_by == name else "")


@register.simple_tag
def when_head(page: IdPage) -> SafeString:
    """{% when_head page %}: the head of the column by which the list is ordered, whole."""
    title = ORDERS[page.order_by][0]
    return format_html(
        '<th scope="col" class="w-when only-roomy" aria-sort="descending">{}</th>', title
    )


@register.simple_tag
def when(page: IdPage, row: Any) -> SafeString:
    """{% when page row %}: the time by which the list is ordered."""
    return ago(getattr(row, page.order_by))


EMPTY_ICONS = {"empty": "inbox", "filtered": "filter", "forbidden": "lock", "unavailable": "plug"}


@register.inclusion_tag("console/parts/empty.html")
def empty(
    kind: str,
    title: str | Promise,
    text: str | Promise = "",
    href: str = "",
    link: str | Promise = "",
) -> dict[str, Any]:
    """{% empty "filtered" _("…") %}: empty, filtered, forbidden or unavailable; four texts."""
    return {
        "kind": kind,
        "title": title,
        "text": text,
        "href": href,
        "link": link,
        "icon_name": EMPTY_ICONS[kind],
    }


@register.inclusion_tag("console/parts/crumbs.html")
def crumbs(*pairs: str) -> dict[str, Any]:
    """{% crumbs _("Requests") requests_url %}: label and address of each page above this one."""
    return {"crumbs": list(zip(pairs[::2], pairs[1::2], strict=True))}
