"""Accounts and their ledgers, as the screens read them."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from console.filters import Choice, Chosen, Id
from console.paging import Cursor, IdPage, page_ids, rows_by_id
from console.statuses import status_of
from kernel.models import Account, LedgerRow

STATES = {
    "active": Q(active=True),
    "disabled": Q(active=False),
    "over_cap": Q(overrun_at__isnull=False),
}
FILTERS = (Choice("state", _("State"), [(name, status_of(name).word) for name in STATES]),)
PAGED_FILTERS = (*FILTERS, Id("from", _("After")))


@dataclass(frozen=True, slots=True)
class LedgerPage:
    """One page of an account's ledger, newest first."""

    rows: Sequence[LedgerRow]
    page: IdPage


def ledger_page(account_id: str, cursor: Cursor | None) -> LedgerPage:
    """Two queries, served by (account, created_at, id)."""
    page = page_ids(
        [LedgerRow.objects.filter(account_id=account_id)], cursor=cursor, order_by="created_at"
    )
    rows = rows_by_id(LedgerRow.objects.defer("lines_text"), page.ids)
    return LedgerPage([row for row in rows if isinstance(row, LedgerRow)], page)


def account_page(chosen: Chosen, rows: int) -> tuple[list[Account], bool]:
    """Accounts by id after the filter `from`, and whether there are more. One query."""
    accounts = Account.objects.filter(id__gt=chosen.values.get("from", ""))
    if state := chosen.values.get("state"):
        accounts = accounts.filter(STATES[state])
    found = list(accounts.order_by("id")[: rows + 1])
    return found[:rows], len(found) > rows
