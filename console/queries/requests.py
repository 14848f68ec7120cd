"""The list of model requests: filters, one page of ids from a covering index, then the rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from console.filters import Choice, Chosen, Id, Moment
from console.paging import CappedCount, Cursor, IdPage, capped_count, page_ids, rows_by_id
from console.queries.walks import index_for, walk
from console.statuses import status_of
from kernel.models import Request
from kernel.states import BILLING_STATES, RESULT_STATES, Billing
from kernel.usage.reasons import REASONS

NOT_OWED = ("rejected", "not_sent", "cancelled", "not_executed", "written_off")
FILTERS = (
    Choice("state", _("Result"), [(name, status_of(name).word) for name in RESULT_STATES]),
    Choice("billing", _("Billing"), [(name, status_of(name).word) for name in BILLING_STATES]),
    Choice("reason", _("Reason"), [(name, name.replace("_", " ")) for name in sorted(REASONS)]),
    Id("account", _("Account")),
    Moment("since", _("From")),
    Moment("until", _("To"), end=True),
)
COLUMNS = {"state": "result_state", "billing": "billing_state", "account": "account_id"}
# What a row of a list shows: 10 of 36 columns, a third of the work of reading a row.
SHOWN = (
    *("id", "account_id", "operation_id", "service_id", "streamed", "result_state"),
    *("billing_state", "pending_reason", "billed_nano", "updated_at"),
)
NEWS_ROWS_MAX = 100


@dataclass(frozen=True, slots=True)
class RequestPage:
    """One page of the list."""

    rows: Sequence[Request]
    page: IdPage


def request_page(chosen: Chosen, cursor: Cursor | None) -> RequestPage:
    """Two queries whatever the page and the size of the table."""
    page = page_ids([_filtered(chosen.values)], cursor=cursor)
    rows = rows_by_id(Request.objects.only(*SHOWN), page.ids)
    return RequestPage([row for row in rows if isinstance(row, Request)], page)


def latest_requests(count: int) -> list[Request]:
    """The newest requests, for Home. Two queries."""
    ids = Request.objects.order_by("-updated_at", "-id").values_list("id", flat=True)[:count]
    rows = rows_by_id(Request.objects.only(*SHOWN), list(ids))
    return [row for row in rows if isinstance(row, Request)]


def changed_since(chosen: Chosen, moment: datetime) -> CappedCount:
    """How many requests of this list changed after `moment`, up to NEWS_ROWS_MAX. One query."""
    rows = _filtered(chosen.values).filter(updated_at__gt=moment)
    return capped_count(rows, cap=NEWS_ROWS_MAX)


def _filtered(values: Mapping[str, Any]) -> QuerySet[Request]:
    values = dict(values)
    rows = Request.objects.all()
    if "reason" in values:
        rows = rows.filter(pending_reason=values["reason"])
        owed = Billing.NOT_CHARGED if values["reason"] in NOT_OWED else Billing.PENDING
        values.setdefault("billing", owed)
    for name, column in COLUMNS.items():
        if name in values:
            rows = rows.filter(**{column: values[name]})
    if "since" in values:
        rows = rows.filter(updated_at__gte=values["since"])
    if "until" in values:
        rows = rows.filter(updated_at__lt=values["until"])
    return walk(rows, index_for(values))
