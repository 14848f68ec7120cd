"""Home's part about jobs and delivery: what waits for a person there, most urgent first."""

from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.formats import ago_text
from console.queries.home import Backlog, Figures
from kernel import clock


def work_items(found: Figures) -> list[dict[str, Any]]:
    """What agent jobs leave to people, most urgent first."""
    jobs = reverse("jobs")
    items = [
        _item(
            found.approvals,
            ngettext(
                "%(count)s call waits for a decision",
                "%(count)s calls wait for a decision",
                found.approvals.count,
            ),
            _("A job or an agent goes on when somebody approves or denies it."),
            icon="approvals",
            tone="accent",
            href=reverse("approvals"),
        ),
        _item(
            found.uncertain,
            ngettext(
                "%(count)s uncertain tool call",
                "%(count)s uncertain tool calls",
                found.uncertain.count,
            ),
            _("Sent, no answer saved. Never sent again: say whether it was done."),
            icon="question",
            tone="unknown",
            href=f"{jobs}?state=waiting",
        ),
        _item(
            found.failing,
            ngettext(
                "%(count)s recorded decision is not carried through",
                "%(count)s recorded decisions are not carried through",
                found.failing.count,
            ),
            _("A step failed; it is tried again by itself. Look at the error."),
            icon="alert",
            tone="warn",
            href=reverse("approvals-decided"),
        ),
        _item(
            found.parked,
            ngettext("%(count)s parked job", "%(count)s parked jobs", found.parked.count),
            _("It lost its workers too often and was set aside. Resume or cancel it."),
            icon="jobs",
            tone="danger",
            href=f"{jobs}?state=parked",
        ),
    ]
    return [item for item in items if item is not None]


def delivery_items(found: Figures) -> list[dict[str, Any]]:
    """What could not be delivered, or is not being sent, most urgent first."""
    items = [
        _item(
            found.dead_letters,
            ngettext(
                "%(count)s open dead letter",
                "%(count)s open dead letters",
                found.dead_letters.count,
            ),
            _("Refused, or given up after all attempts. Replay them once the cause is gone."),
            icon="dead-letters",
            tone="danger",
            href=reverse("dead-letters"),
        ),
        _item(
            found.closed,
            ngettext(
                "%(count)s destination takes nothing just now",
                "%(count)s destinations take nothing just now",
                found.closed.count,
            ),
            _("Closed by failures in a row, or by a person. What waits keeps its attempts."),
            icon="destinations",
            tone="warn",
            href=reverse("destinations"),
        ),
        _item(
            found.overdue,
            ngettext(
                "%(count)s notification is overdue",
                "%(count)s notifications are overdue",
                found.overdue.count,
            ),
            _("Due, and not sent: its destination is closed or switched off, or no sender runs."),
            icon="bell",
            tone="warn",
            href=f"{reverse('notifications')}?state=queued",
        ),
    ]
    return [item for item in items if item is not None]


def _item(backlog: Backlog, title: str, text: str, **look: str) -> dict[str, Any] | None:
    if not backlog.count:
        return None
    return {
        "title": title % {"count": backlog},
        "text": text,
        "side": since_text(backlog),
        **look,
    }


def since_text(backlog: Backlog) -> str:
    """Since when the oldest waits, in words; '' when nothing waits."""
    if not backlog.count or backlog.oldest_at is None:
        return ""
    age = ago_text(backlog.oldest_at, now=clock.now())
    return age if backlog.count == 1 else _("oldest %(age)s") % {"age": age}
