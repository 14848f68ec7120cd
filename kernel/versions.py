"""Rows that people change: a change names the version it was made from, and makes the next one."""

from typing import Any

from kernel import clock
from kernel.errors import LostRace
from kernel.transactions import requires_transaction


@requires_transaction
def change_at_version_in_tx(row: Any, seen_version: int, columns: dict[str, Any]) -> None:
    """Write `columns` to the row if it is still at `seen_version`; it has the next one then.

    LostRace, nothing written, when somebody changed it meanwhile. `row` holds what is stored after.
    """
    same = type(row).objects.filter(pk=row.pk, version=seen_version)
    if same.update(version=seen_version + 1, updated_at=clock.db_now(), **columns) != 1:
        name = row._meta.model_name
        raise LostRace(f"{name} {row.pk} was changed meanwhile", version=row.version)
    row.refresh_from_db()
