"""Home: what needs a person, then how things run. Seven queries."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.access import needs
from console.formats import ago_text
from console.queries.home import Backlog, Figures, figures
from console.queries.passes import passes, processes
from console.queries.requests import latest_requests
from console.responses import Screen
from console.words import pass_text
from kernel import clock
from kernel.usage import metering
from kernel.usage.reasons import REASONS

LATEST_ROWS = 8
GAPS = ("unpriced", "unpriced_unit", "unpriced_tier")


@needs("view")
def home(request: HttpRequest) -> HttpResponse:
    """What needs attention first; figures, latest requests, processes and passes below."""
    found = figures()
    views = passes()
    return Screen(request, "console/home/index.html", "console/home/_attention.html").show(
        {
            "attention": _attention(found, [view for view in views if view.state != "healthy"]),
            "all_well": _("No unknown outcome, nothing overdue, every pass on time."),
            "stats": _stats(found),
            "recent": latest_requests(LATEST_ROWS),
            "processes": [
                {
                    "name": one.name,
                    "state": one.state,
                    "text": _("Runs maintenance"),
                    "seen_at": one.seen_at,
                }
                for one in processes(views)
            ],
            "passes": [
                {
                    "name": view.row.name,
                    "state": view.state,
                    "text": pass_text(view.row),
                    "finished_at": view.row.finished_at,
                }
                for view in views
            ],
            "now": clock.now(),
        }
    )


def _attention(found: Figures, ailing: list[Any]) -> list[dict[str, Any]]:
    requests = reverse("requests")
    items = []
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
                "side": _oldest(found.unknown),
                "href": f"{requests}?state=unknown",
            }
        )
    items += _money_items(found, requests)
    for view in ailing:
        if view.state in ("late", "backing_off"):
            items.append(
                {
                    "icon": "clock",
                    "tone": "warn",
                    "title": _("The %(name)s pass is %(state)s")
                    % {"name": view.row.name, "state": view.state.replace("_", " ")},
                    "text": pass_text(view.row),
                    "side": "",
                    "href": reverse("reconciliation"),
                }
            )
    return items


def _money_items(found: Figures, requests: str) -> list[dict[str, Any]]:
    items = []
    if found.overrun.count:
        items.append(
            {
                "icon": "alert",
                "tone": "danger",
                "title": ngettext(
                    "%(count)s account over its cap",
                    "%(count)s accounts over their cap",
                    found.overrun.count,
                )
                % {"count": found.overrun},
                "text": _("Real charges passed the cap; new requests are refused."),
                "side": _oldest(found.overrun),
                "href": reverse("accounts"),
            }
        )
    gaps = sum(found.reasons.get(reason, 0) for reason in GAPS)
    if gaps:
        items.append(
            {
                "icon": "prices",
                "tone": "warn",
                "title": _("%(count)s of the newest pending requests lack a price")
                % {"count": gaps},
                "text": _("Add an operator price; they settle with the next pass."),
                "side": "",
                "href": reverse("prices"),
            }
        )
    unreadable = sum(found.reasons.get(reason, 0) for reason in metering.REASONS)
    if unreadable:
        worst = max(metering.REASONS, key=lambda reason: found.reasons.get(reason, 0))
        items.append(
            {
                "icon": "coin-check",
                "tone": "warn",
                "title": ngettext(
                    "%(count)s charge needs a person",
                    "%(count)s charges need a person",
                    unreadable,
                )
                % {"count": unreadable},
                "text": REASONS[worst].means,
                "side": _oldest(found.pending),
                "href": f"{requests}?billing=pending",
            }
        )
    return items


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
            "note": _oldest(found.pending) or _("nothing waits"),
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


def _oldest(backlog: Backlog) -> str:
    if backlog.oldest_at is None:
        return ""
    return _("oldest %(age)s") % {"age": ago_text(backlog.oldest_at, now=clock.now())}
