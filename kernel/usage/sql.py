"""The statements of money: a hold, a charge, and the rows they lock (A14, A15)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Model

from kernel import sql
from kernel.transactions import requires_transaction

# A hold under a cap. Subtracted, because consumed + held + hold can leave the column's range.
HOLD = (
    "UPDATE bz_usage_accounts SET held_nano = held_nano + %s"
    " WHERE id = %s AND overrun_at IS NULL AND cap_nano - consumed_nano - held_nano >= %s"
)
# A charge takes effect: its ledger row first, then these, the account last (A14, A15).
SETTLE = (
    "UPDATE bz_usage_requests SET billing_state = %s, pending_reason = '', billed_nano ="
    " (SELECT amount_nano FROM bz_usage_ledger WHERE charge_of = bz_usage_requests.id LIMIT 1),"
    " reference_nano ="
    " (SELECT reference_nano FROM bz_usage_ledger WHERE charge_of = bz_usage_requests.id LIMIT 1),"
    " settled_at = %s, updated_at = %s WHERE billing_state = %s AND id IN ({marks})"
)
# The flag comes first: MySQL would compare with what is already added, SQLite would not.
CONSUME = (
    "UPDATE bz_usage_accounts SET overrun_at = CASE"
    " WHEN overrun_at IS NULL AND cap_nano < consumed_nano + %s THEN %s ELSE overrun_at END,"
    " consumed_nano = consumed_nano + %s, held_nano = held_nano - %s WHERE id = %s"
)

Row = TypeVar("Row", bound=Model)


@requires_transaction
def locked_rows_in_tx(
    model: type[Row], where: Mapping[str, Any], *, columns: tuple[str, ...] = ()
) -> list[Row]:
    """Rows by key as `sql.rows`, locked in id order."""
    return sql.rows(model, where, columns=columns, more="ORDER BY id", lock=sql.WAIT)


@requires_transaction
def locked_values_in_tx(
    model: type[Model], columns: tuple[str, ...], where: Mapping[str, Any]
) -> Sequence[Sequence[Any]]:
    """The same as plain values, in the order of `columns`."""
    return sql.values(model, columns, where, more="ORDER BY id", lock=sql.WAIT)


@requires_transaction
def settle_rows_in_tx(ids: Sequence[str], *, before: str, after: str, now: datetime) -> int:
    """Move charged requests from `before` to `after`, with their amounts from the ledger."""
    statement = SETTLE.format(marks=sql.marks(len(ids)))
    return sql.execute_in_tx(statement, [after, now, now, before, *ids])
