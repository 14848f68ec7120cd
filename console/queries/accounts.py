"""Accounts and their ledgers, as the screens read them."""

from collections.abc import Sequence
from dataclasses import dataclass

from console.paging import Cursor, IdPage, page_ids, rows_by_id
from kernel.models import Account, LedgerRow


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


def account_page(cursor_id: str, rows: int) -> tuple[list[Account], bool]:
    """Accounts by id after `cursor_id`, and whether there are more. One query."""
    found = list(Account.objects.filter(id__gt=cursor_id).order_by("id")[: rows + 1])
    return found[:rows], len(found) > rows
