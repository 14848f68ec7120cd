"""The list of model requests: filters, one page of ids from a covering index, then the rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from console.filters import Choice, Chosen, Id, Moment
from console.paging import Cursor, IdPage, page_ids, rows_by_id
from console.statuses import status_of
from kernel.models import Request
from kernel.states import BILLING_STATES, RESULT_STATES

FILTERS = (
    Choice("state", _("Result"), [(name, status_of(name).word) for name in RESULT_STATES]),
    Choice("billing", _("Billing"), [(name, status_of(name).word) for name in BILLING_STATES]),
    Id("account", _("Account")),
    Moment("since", _("From")),
    Moment("until", _("To"), end=True),
)
# Long texts stay in the table: a list never loads them.
HEAVY = ("price_text", "usage_text", "late_usage_text", "error_text")


@dataclass(frozen=True, slots=True)
class RequestPage:
    """One page of the list."""

    rows: Sequence[Request]
    page: IdPage


def request_page(chosen: Chosen, cursor: Cursor | None) -> RequestPage:
    """Two queries whatever the page and the size of the table."""
    page = page_ids([_filtered(chosen)], cursor=cursor)
    rows = rows_by_id(Request.objects.defer(*HEAVY), page.ids)
    return RequestPage([row for row in rows if isinstance(row, Request)], page)


def latest_requests(count: int) -> list[Request]:
    """The newest requests, for Home. Two queries."""
    ids = Request.objects.order_by("-updated_at", "-id").values_list("id", flat=True)[:count]
    rows = rows_by_id(Request.objects.defer(*HEAVY), list(ids))
    return [row for row in rows if isinstance(row, Request)]


def _filtered(chosen: Chosen) -> QuerySet[Request]:
    rows = Request.objects.all()
    columns = {"state": "result_state", "billing": "billing_state", "account": "account_id"}
    for name, column in columns.items():
        if name in chosen.values:
            rows = rows.filter(**{column: chosen.values[name]})
    if "since" in chosen.values:
        rows = rows.filter(updated_at__gte=chosen.values["since"])
    if "until" in chosen.values:
        rows = rows.filter(updated_at__lt=chosen.values["until"])
    return rows
