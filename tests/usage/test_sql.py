"""What the hand-written reads give is what the ORM gives (A2, A14)."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from kernel import clock, sql
from kernel.errors import InvalidId, KernelError
from kernel.models import Account, Request, Service
from kernel.usage.sql import locked_rows_in_tx
from tests.support.product import make_account, make_service


@pytest.fixture
def two_accounts(kernel_db: None) -> None:
    make_account()
    make_account("acct-2")
    make_service()
    Account.objects.filter(id="acct-2").update(
        overrun_at=clock.now() - timedelta(days=1), active=False, cap_nano=5
    )


@pytest.mark.parametrize("model", [Account, Service])
@pytest.mark.parametrize("read", [sql.rows, locked_rows_in_tx])
def test_rows_are_those_of_the_orm(
    two_accounts: None, model: type[Account] | type[Service], read: Any
) -> None:
    expected = {row.id: row.__dict__ for row in model.objects.all()}
    with transaction.atomic():
        found = read(model, {"id": [*expected, "nobody"]})
    names = [field.attname for field in model._meta.concrete_fields]
    assert len(found) == len(expected) > 0
    for row in found:
        assert {name: getattr(row, name) for name in names} == {
            name: expected[row.id][name] for name in names
        }


def test_no_values_find_nothing_and_a_value_that_is_no_id_never_reaches_the_column(
    two_accounts: None,
) -> None:
    with transaction.atomic():
        assert locked_rows_in_tx(Account, {"id": []}) == []
        with pytest.raises(InvalidId):
            locked_rows_in_tx(Account, {"id": ["é"]})
    with pytest.raises(KernelError):
        locked_rows_in_tx(Request, {"id": "req"})
