"""Notifications as the screens read them: one page by the index its filters name, the attempts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from console.filters import Choice, Chosen, Id
from console.paging import CappedCount, Cursor, IdPage, capped_count, page_ids, rows_by_id
from console.queries.walks import walk
from console.statuses import status_of
from kernel.models import DeadLetter, Notification
from kernel.states import NOTIFICATION, NotificationState

STATES = tuple(state.name for state in NOTIFICATION.states)
KINDS = (
    ("callback", _("Job callback")),
    ("delivery", _("Delivery")),
    ("approval_webhook", _("Approval webhook")),
    ("alert", _("Alert")),
)
FILTERS = (
    Choice("state", _("State"), [(one, status_of(f"notification_{one}").word) for one in STATES]),
    Choice("kind", _("Kind"), KINDS),
    Id("destination", _("Destination")),
    Id("account", _("Account")),
)
BY_STATE, BY_DESTINATION = "bz_notification_list", "bz_notification_dest"
BY_ACCOUNT = "bz_notification_acct"
# Contents and long errors stay in the table: a list never loads them.
HEAVY = ("content", "error_text")
NEWS_ROWS_MAX = 100
# The dead letter and the end of its notification are written by one transaction.
ONE_TRANSACTION = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class NotificationPage:
    """One page of the list."""

    rows: Sequence[Notification]
    page: IdPage


def notification_page(chosen: Chosen, cursor: Cursor | None) -> NotificationPage:
    """Two queries. Of one destination the latest due time comes first, else the latest change."""
    order_by = "due_at" if "destination" in chosen.values else "updated_at"
    page = page_ids(_branches(chosen), cursor=cursor, order_by=order_by)
    found = rows_by_id(Notification.objects.defer(*HEAVY), page.ids)
    return NotificationPage([row for row in found if isinstance(row, Notification)], page)


def changed_since(chosen: Chosen, moment: datetime) -> CappedCount:
    """How many of this list changed after `moment`, up to NEWS_ROWS_MAX. A query per branch."""
    found = [
        capped_count(branch.filter(updated_at__gt=moment), cap=NEWS_ROWS_MAX)
        for branch in _branches(chosen)
    ]
    value = sum(one.value for one in found)
    is_capped = value > NEWS_ROWS_MAX or any(one.capped for one in found)
    return CappedCount(min(value, NEWS_ROWS_MAX), is_capped)


def _branches(chosen: Chosen) -> list[QuerySet[Notification]]:
    """Disjoint querysets, each of which walks one index; `kind` is read from their rows."""
    values = chosen.values
    rows = Notification.objects.all()
    if "kind" in values:
        rows = rows.filter(kind=values["kind"])
    states = [values["state"]] if "state" in values else STATES
    destination, account = values.get("destination"), values.get("account")
    if account:
        rows = rows.filter(account_id=account)
    if destination:
        rows = rows.filter(destination_id=destination)
        return [walk(rows.filter(state=one), BY_DESTINATION) for one in states]
    if account:
        return [walk(rows.filter(state=states[0]) if "state" in values else rows, BY_ACCOUNT)]
    return [walk(rows.filter(state=one), BY_STATE) for one in states]


def latest_at(destination_id: str, *, count: int) -> list[Notification]:
    """The notifications of one destination that are due latest. Two queries."""
    branches = [
        walk(Notification.objects.filter(destination_id=destination_id, state=one), BY_DESTINATION)
        for one in STATES
    ]
    page = page_ids(branches, cursor=None, rows=count, order_by="due_at")
    found = rows_by_id(Notification.objects.defer(*HEAVY), page.ids)
    return [row for row in found if isinstance(row, Notification)]


def dead_letter_of(row: Notification) -> DeadLetter | None:
    """The dead letter that holds it, None when it is not dead. One query, by account and time."""
    if row.state != NotificationState.DEAD or row.finished_at is None:
        return None
    around = (row.finished_at - ONE_TRANSACTION, row.finished_at + ONE_TRANSACTION)
    found = DeadLetter.objects.defer("content", "error_text").filter(
        account_id=row.account_id, created_at__range=around, notification_id=row.id
    )
    return found.order_by("-created_at", "-id").first()
