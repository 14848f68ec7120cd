"""Home: what needs a person, then how things run. Eight queries; a poll asks for two counts."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET

from console.access import needs
from console.acting import version_of
from console.filters import read_filters
from console.middleware import is_poll
from console.migrated import is_migrated
from console.queries.home import Backlog, Figures, figures
from console.queries.passes import PassView, passes, processes
from console.queries.requests import changed_since, latest_requests
from console.responses import Screen
from console.statuses import status_of
from console.views.home_work import delivery_items, since_text, work_items
from console.views.news import news, seen_moment
from console.views.trends import outcomes_chart
from console.words import pass_name, pass_text
from kernel import clock
from kernel.schema import DELIVERY
from kernel.usage.reasons import REASONS

LATEST_ROWS = 8


@needs("view")
@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """What needs attention first; figures, latest requests, processes and passes below."""
    if is_poll(request):
        return _news(request)
    found = _figures()
    views = passes()
    recent = latest_requests(LATEST_ROWS)
    now = clock.now()
    seen = version_of(recent[0].updated_at if recent else now)
    return Screen(request, "console/home/index.html", "console/home/_attention.html").show(
        {
            "attention": _attention(found, views),
            "all_well": _(
                "No question open, no unknown outcome, nothing overdue, every pass on time."
            ),
            "stats": _stats(found),
            "recent": recent,
            "outcomes": outcomes_chart(),
            "processes": processes(views),
            "on_time": len(views) - len(_ailing(views)),
            "ailing": [
                {
                    "name": pass_name(view.row.name),
                    "state": view.state,
                    "text": pass_text(view.row),
                    "at": view.row.started_at if view.row.running else view.row.finished_at,
                }
                for view in _ailing(views)
            ],
            "now": now,
            "news_address": f"?poll=1&seen={seen}&unknown={found.unknown.count}"
            f"&waiting={found.approvals.count}",
        }
    )


def _figures() -> Figures:
    return figures(with_jobs=is_migrated(), with_delivery=is_migrated(DELIVERY))


def _news(request: HttpRequest) -> HttpResponse:
    changed = changed_since(read_filters({}, ()), seen_moment(request))
    known = request.GET.get("unknown", "")
    found = _figures()
    more = found.unknown.count - int(known) if known.isascii() and known.isdigit() else 0
    waiting = request.GET.get("waiting", "")
    asked = found.approvals.count - int(waiting) if waiting.isascii() and waiting.isdigit() else 0
    return news(
        request,
        href=reverse("home"),
        changed=changed,
        unknown=max(more, 0),
        waiting=max(asked, 0),
    )


def _attention(found: Figures, views: list[PassView]) -> list[dict[str, Any]]:
    items = []
    if found.broken.count:
        items.append(
            {
                "icon": "alert",
                "tone": "danger",
                "title": ngettext(
                    "%(count)s invariant of the database does not hold",
                    "%(count)s invariants of the database do not hold",
                    found.broken.count,
                )
                % {"count": found.broken},
                "text": _("Found by the last db_verify. Look before anything is repaired."),
                "side": since_text(found.broken),
                "href": reverse("health"),
            }
        )
    items += _check_items(found)
    if found.unknown.count:
        items.append(
            {
                "icon": "question",
                "tone": "unknown",
                "title": ngettext(
                    "%(count)s request with an unknown outcome",
                    "%(count)s requests with an unknown outcome",
                    found.unknown.count,
                )
                % {"count": found.unknown},
                "text": _("Sent, no answer saved. Never sent again: look it up and resolve it."),
                "side": since_text(found.unknown),
                "href": f"{reverse('requests')}?state=unknown",
            }
        )
    items += work_items(found)
    items += delivery_items(found)
    items += _money_items(found)
    items += [_pass_item(view) for view in _ailing(views)]
    return items


def _check_items(found: Figures) -> list[dict[str, Any]]:
    """The installation's checks that fail, and apart from them those that only warn."""
    lines = (
        (
            found.unfit,
            "danger",
            ngettext(
                "%(count)s check of the installation fails",
                "%(count)s checks of the installation fail",
                found.unfit.count,
            ),
        ),
        (
            found.warned,
            "warn",
            ngettext(
                "%(count)s check of the installation warns",
                "%(count)s checks of the installation warn",
                found.warned.count,
            ),
        ),
    )
    return [
        {
            "icon": "alert",
            "tone": tone,
            "title": title % {"count": checks},
            "text": _("Found by the last examination. Health says what to do."),
            "side": since_text(checks),
            "href": reverse("health"),
        }
        for checks, tone, title in lines
        if checks.count
    ]


def _ailing(views: list[PassView]) -> list[PassView]:
    return [view for view in views if view.state in ("late", "backing_off")]


def _pass_item(view: PassView) -> dict[str, Any]:
    state = str(status_of(view.state).word).lower()
    return {
        "icon": "clock",
        "tone": "warn",
        "title": f"{pass_name(view.row.name)}: {state}",
        "text": pass_text(view.row),
        "side": "",
        "href": reverse("reconciliation"),
    }


def _money_items(found: Figures) -> list[dict[str, Any]]:
    items = []
    if found.overrun.count:
        items.append(
            {
                "icon": "accounts",
                "tone": "danger",
                "title": ngettext(
                    "%(count)s account over its cap",
                    "%(count)s accounts over their cap",
                    found.overrun.count,
                )
                % {"count": found.overrun},
                "text": _("Real charges passed the cap; new requests are refused."),
                "side": since_text(found.overrun),
                "href": f"{reverse('accounts')}?state=over_cap",
            }
        )
    unpriced = found.reasons.get("unpriced")
    if unpriced:
        items.append(
            {
                "icon": "prices",
                "tone": "warn",
                "title": ngettext(
                    "%(count)s charge waits for a price",
                    "%(count)s charges wait for a price",
                    unpriced.count,
                )
                % {"count": unpriced},
                "text": _("A price that was valid at admission settles it with the next pass."),
                "side": since_text(unpriced),
                "href": reverse("prices"),
            }
        )
    return items + _stuck_items(found)


def _stuck_items(found: Figures) -> list[dict[str, Any]]:
    """Pending charges that nothing settles by itself, as one entry."""
    stuck = {code: one for code, one in found.reasons.items() if code not in ("", "unpriced")}
    if not stuck:
        return []
    oldest = [one.oldest_at for one in stuck.values() if one.oldest_at is not None]
    total = Backlog(sum(one.count for one in stuck.values()), oldest_at=min(oldest, default=None))
    most = max(stuck, key=lambda code: stuck[code].count)
    address = f"{reverse('requests')}?billing=pending&reason={most}"
    return [
        {
            "icon": "coin-check",
            "tone": "warn",
            "title": ngettext(
                "%(count)s charge needs a person",
                "%(count)s charges need a person",
                total.count,
            )
            % {"count": total},
            "text": REASONS[most].means if most in REASONS else most,
            "side": since_text(total),
            "href": address if len(stuck) == 1 else f"{reverse('reconciliation')}#reasons",
        }
    ]


def _stats(found: Figures) -> list[dict[str, Any]]:
    requests = reverse("requests")
    cards: list[dict[str, Any]] = [
        {
            "label": _("In flight"),
            "value": str(found.dispatched),
            "note": _("sent, answer awaited"),
            "href": f"{requests}?state=dispatched",
        },
        {
            "label": _("Not dispatched"),
            "value": str(found.admitted),
            "note": _("admitted, waiting for their caller"),
            "href": f"{requests}?state=admitted",
        },
        {
            "label": _("Pending charges"),
            "value": str(found.pending),
            "note": since_text(found.pending) or _("nothing waits"),
            "href": f"{requests}?billing=pending",
        },
        {
            "label": _("Settled in total"),
            "nano": found.consumed_nano,
            "note": _("sum of all ledgers"),
            "href": reverse("accounts"),
        },
    ]
    return [{"nano": None, "trend": None, **card} for card in cards]
