"""Template tags for the rows of long lists: each row is one f-string.

Fifty rows of templates are the most expensive part of a page, four times what is here. What stands
in braces comes from a tag of `values`, or went through `escape`.
"""

from collections.abc import Iterable
from html import escape
from typing import Any

from django import template
from django.template import Context
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.access import Ability, ability
from console.formats import count_text
from console.queries.approvals import ApprovalRow
from console.queries.dead_letters import GroupRow
from console.templatetags.parts import button_html
from console.templatetags.values import address, ago, billed, escaped, id_tag, status
from kernel.models import Request

register = template.Library()


@register.simple_tag
def request_rows(rows: Iterable[Request]) -> SafeString:
    """{% request_rows rows %}: operation, account, service, result, billing, amount, time."""
    base = reverse("requests")
    return SafeString("".join(_request(row, base) for row in rows))


def _request(row: Request, base: str) -> str:
    changed, amount = ago(row.updated_at), billed(row)
    account, service = escaped(row.account_id), escaped(row.service_id)
    operation = id_tag(row.operation_id, href=f"{base}{row.id}/", short=True, row=True)
    streamed = f'<span class="row-meta">{_("streamed")}</span>' if row.streamed else ""
    return f"""<tr>
    <td>{operation}
      <span class="row-meta only-snug"><span class="only-tight">{account} · </span>{service}</span>
      <span class="row-meta only-tight">{changed}</span></td>
    <td class="only-roomy"><span class="cell-clip">{account}</span></td>
    <td class="only-spacious"><span class="cell-clip">{service}</span>{streamed}</td>
    <td class="cell-state">{status(row.result_state)}<span class="only-narrow">{amount}</span></td>
    <td class="only-wide">{status(row.billing_state, reason=row.pending_reason)}</td>
    <td class="is-number only-wide">{amount}</td>
    <td class="only-roomy">{changed}</td>
  </tr>"""


@register.simple_tag
def open_approval_rows(rows: Iterable[ApprovalRow], may: Ability) -> SafeString:
    """{% open_approval_rows rows may %}: each with its tick box where the person may decide."""
    base = reverse("approvals")
    return SafeString("".join(_open_approval(one, base, may) for one in rows))


def _open_approval(one: ApprovalRow, base: str, may: Ability) -> str:
    row, row_id, is_open = one.row, escape(one.row.id), one.is_actionable
    tool, asker, risk = escaped(row.tool), one.asker.html, status(f"risk_{row.risk}")
    asked, expires = ago(row.created_at), ago(row.expires_at)
    expired = "" if is_open else status("approval_expired")
    tick = f"""
    <td class="w-check"><label class="tick"><input type="checkbox" name="id" value="{row_id}"\
{"" if is_open else " disabled"}><span class="sr-only">{_("Tick")} {row_id}</span></label></td>"""
    effect = escaped(row.effect, none=row.tool)
    origin = _("for a job") if row.job_id else _("direct call")
    origin = f"{escape(one.asker.word)} · {origin}" if one.asker.word else origin
    times = f"{_('asked')} {asked} · {_('expires')} {expires}"
    return f"""<tr>{tick if may else ""}
    <td><a class="row-link effect-line" href="{base}{row_id}/">{effect}</a>
      <span class="row-meta only-narrow">{risk}{"" if is_open else f" {expired}"}</span>
      <span class="row-meta only-tight">{tool} · {asker}</span>
      <span class="row-meta only-narrow">{times}</span></td>
    <td class="only-wide">{risk}</td>
    <td class="only-roomy"><span class="cell-clip">{tool}</span>\
<span class="row-meta">{escaped(row.account_id)}</span></td>
    <td class="only-roomy"><span class="cell-clip">{one.asker.name_html}</span>\
<span class="row-meta">{origin}</span></td>
    <td class="only-wide is-brief">{asked}</td>
    <td class="only-wide is-brief">{expires if is_open else expired}</td>
  </tr>"""


@register.simple_tag
def closed_approval_rows(rows: Iterable[ApprovalRow]) -> SafeString:
    """{% closed_approval_rows rows %}: what was asked, the decision, what became of it, when."""
    base = reverse("approvals")
    return SafeString("".join(_closed_approval(one, base) for one in rows))


def _closed_approval(one: ApprovalRow, base: str) -> str:
    row, closed = one.row, ago(one.row.decided_at or one.row.updated_at)
    fate = status(f"fate_{one.fate}")
    asked_by = f"{escaped(row.tool)} · {escaped(row.account_id)} · {one.asker.html}"
    tries = ""
    if one.attempts and one.fate == "owed_failing":
        text = ngettext("%(n)s attempt", "%(n)s attempts", one.attempts) % {"n": one.attempts}
        tries = f'<span class="row-meta">{text}</span>'
    effect = escaped(row.effect, none=row.tool)
    return f"""<tr>
    <td><a class="row-link effect-line" href="{base}{escape(row.id)}/">{effect}</a>
      <span class="row-meta">{asked_by}</span>
      <span class="row-meta only-tight">{closed}</span></td>
    <td>{_decision(one)}
<span class="row-meta only-narrow">{fate}</span></td>
    <td class="only-wide">{fate}{tries}</td>
    <td class="only-spacious is-brief">{closed}</td>
    <td class="only-roomy">{ago(row.created_at)}</td>
  </tr>"""


def _decision(one: ApprovalRow) -> str:
    """A decision in two lines: what, by whom."""
    row = one.row
    if not row.decision:
        return status(f"approval_{row.state}")
    unused = {"expired": _("the grant expired unused"), "cancelled": _("voided unused")}
    text = unused.get(row.state, "") if row.decision == "approved" else ""
    notes = [text] if text else []
    notes += [one.decider.html] if one.decider else []
    lines = "".join(f'<span class="row-meta">{note}</span>' for note in notes)
    return f"{status(f'approval_{row.decision}')}{lines}"


@register.simple_tag
def letter_rows(rows: Iterable[Any]) -> SafeString:
    """{% letter_rows rows %}: dead letters, each with its `error_head`."""
    base = reverse("dead-letters")
    return SafeString("".join(_letter(row, base) for row in rows))


def _letter(row: Any, base: str) -> str:
    error = escaped(row.error_head, none=row.id)
    given_up, recipient = ago(row.created_at), address(row.channel, row.recipient)
    doubt = _("possible duplicate") if row.unknown_attempts else ""
    beside = f' · <span class="doubt">{doubt}</span>' if doubt else ""
    below = f'<span class="row-meta doubt only-wide">{doubt}</span>' if doubt else ""
    place = f" · {escaped(row.destination_id)}" if row.destination_id else ""
    return f"""<tr>
    <td><a class="row-link effect-line mono" href="{base}{escape(row.id)}/">{error}</a>\
<span class="row-meta">{escaped(row.event, none=row.channel)}\
<span class="only-desk"> · {id_tag(row.id, short=True)}</span></span>\
<span class="row-meta only-tight">{recipient}</span>\
<span class="row-meta only-narrow">{given_up}{beside}</span></td>
    <td class="cell-state">{status(f"letter_{row.state}")}{below}</td>
    <td class="only-roomy"><span class="cell-clip">{recipient}</span>\
<span class="row-meta">{escaped(row.channel)}{place}</span></td>
    <td class="only-spacious"><span class="cell-clip">{escaped(row.account_id)}</span></td>
    <td class="only-wide">{given_up}</td>
  </tr>"""


@register.simple_tag(takes_context=True)
def letter_group_rows(context: Context, groups: Iterable[GroupRow]) -> SafeString:
    """{% letter_group_rows groups %}: what went wrong, how often, when; a way to replay it."""
    may = ability(context["request"].user, "operate")
    return SafeString("".join(_letter_group(one, may) for one in groups))


def _letter_group(one: GroupRow, may: Ability) -> str:
    row, group = one.row, escape(one.row.fingerprint)
    first, last = ago(row.first_seen_at), ago(row.last_seen_at)
    opened, total = count_text(row.open_count), count_text(row.total_count)
    doubt = plan = replay = ""
    if one.doubtful:
        numbers = {"n": count_text(one.doubtful), "of": count_text(one.looked_at)}
        text = _("%(n)s of the newest %(of)s may have arrived already") % numbers
        doubt = f'<span class="row-meta is-wrapped doubt">{text}</span>'
    if row.open_count:
        way = f"{reverse('dead-letters-replay')}?group={row.fingerprint}"
        link = f'<a class="lift" href="{escape(way)}">{_("Plan a replay…")}</a>'
        plan = f'<span class="row-meta only-narrow">{link}</span>'
        replay = button_html(_("Replay…"), href=way, icon_name="refresh", reason=may.reason)
    listed = f"{reverse('dead-letters-list')}?group={group}"
    listed += "&amp;state=open" if row.open_count else ""
    error = escaped(row.sample_text[:600], none=_("no error text"))
    return f"""<tr>
    <td><a class="row-link effect-line mono" href="{listed}">{error}</a>
      <span class="row-meta">{escaped(row.channel, none="")}</span>{doubt}
      <span class="row-meta only-tight">{_("first")} {first}\
<span class="only-narrow"> {_("last")} {last}</span></span>
      {plan}</td>
    <td class="is-number"><strong>{opened}</strong>\
<span class="row-meta only-tight">{_("of %(n)s") % {"n": total}}</span></td>
    <td class="is-number only-roomy">{total}</td>
    <td class="only-roomy">{first}</td>
    <td class="only-wide">{last}</td>
    <td class="only-wide"><span class="cell-acts">{replay}</span></td>
  </tr>"""
