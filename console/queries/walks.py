"""The index a list walks: chosen by what is asked for, never by the optimizer.

MariaDB, left alone, read 78,702 rows of 200,000 for one page of (complete, settled, a week);
walking the right index it reads 101. A wrong index is worse than none: 196,502 rows, not 601, for
(account, complete, pending). SQLite has no need of hints and gets none.
"""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.db.models.sql.datastructures import BaseTable

from kernel.states import Billing, Result

BY_TIME = "bz_usage_req_at"
BY_STATE = "bz_usage_req_state"
BY_ACCOUNT = "bz_usage_req_account"
BY_ACCOUNT_STATE = "bz_usage_req_account_state"
BY_BILLING = "bz_usage_req_settlement"
# What waits: few rows on any installation that works.
WAITING_STATES = (Result.ADMITTED, Result.DISPATCHED, Result.UNKNOWN)
WAITING_BILLINGS = (Billing.OPEN, Billing.PENDING)


def index_for(values: Mapping[str, Any]) -> str:
    """The index for these filters (state, billing, account): the smallest set of rows first."""
    state, billing, account = (values.get(name) for name in ("state", "billing", "account"))
    rare_state = state is not None and state != Result.COMPLETE
    rare_billing = billing is not None and billing != Billing.SETTLED
    choices = (
        (bool(account) and rare_state, BY_ACCOUNT_STATE),
        (state in WAITING_STATES, BY_STATE),
        (billing in WAITING_BILLINGS, BY_BILLING),
        (rare_billing and not rare_state, BY_BILLING),
        (bool(account) and state is not None, BY_ACCOUNT_STATE),
        (bool(account), BY_ACCOUNT),
        (state is not None, BY_STATE),
        (billing is not None, BY_BILLING),
    )
    return next((index for fits, index in choices if fits), BY_TIME)


def walk(queryset: QuerySet[Any], index: str) -> QuerySet[Any]:
    """The same rows, read along `index` of the queryset's own table (MySQL and MariaDB)."""
    walked = queryset.all()
    alias = walked.query.get_initial_alias()
    walked.query.alias_map[alias] = _Walked(walked.model._meta.db_table, alias, index)
    return walked


class _Walked(BaseTable):
    """The table in the FROM clause, with the index to use."""

    def __init__(self, table_name: str, alias: str | None, index: str):
        super().__init__(table_name, alias)
        self.index = index

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[str | int, ...]]:
        text, parameters = super().as_sql(compiler, connection)
        if connection.vendor == "mysql":
            text = f"{text} FORCE INDEX ({connection.ops.quote_name(self.index)})"
        return text, parameters

    def relabeled_clone(self, change_map: Mapping[str | None, str]) -> "_Walked":
        alias = change_map.get(self.table_alias, self.table_alias)
        return self.__class__(self.table_name, alias, self.index)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (*super().identity, self.index)
