"""Reads: a request, its bodies, its charge from stored facts alone; reads change nothing (A13)."""

import pytest
from django.db import connection

from kernel import usage
from kernel.errors import InvalidId, NotFound
from kernel.models import LedgerRow, Request
from kernel.usage import explain_charge, find_requests, get_request, get_request_by_id, lookup
from kernel.usage.lookup import Found
from tests.support.product import admitted, ask, make_account, make_service
from tests.usage.flow import Statements, answered, body_with, dispatched, outcome_of, row_of, saved


@pytest.fixture
def acme(kernel_db: None) -> None:
    make_account()
    make_account("other")
    make_service()


def settled_row() -> Request:
    request_id = answered()
    usage.settle(items=[request_id])
    return row_of(request_id)


def test_an_operation_is_found_by_its_account_and_exact_id(acme: None) -> None:
    row = admitted(ask("Op-1"))
    assert get_request(account_id="acme", operation_id="Op-1").id == row.id
    assert get_request_by_id(request_id=row.id).operation_id == "Op-1"
    for account_id, operation_id in (("acme", "op-1"), ("other", "Op-1"), ("acme", "none")):
        with pytest.raises(NotFound):
            get_request(account_id=account_id, operation_id=operation_id)
    with pytest.raises(NotFound):
        get_request_by_id(request_id="req_none")


def test_one_operation_id_is_found_in_all_accounts(acme: None) -> None:
    rows = [admitted(ask("op-1", account_id=account_id)) for account_id in ("other", "acme")]
    statements = Statements()
    with connection.execute_wrapper(statements):
        found = find_requests(operation_id="op-1")
    assert found == Found(((rows[1].id, "acme"), (rows[0].id, "other")))
    assert len(statements.texts) == 1
    assert find_requests(operation_id="OP-1") == Found(())
    with pytest.raises(InvalidId):
        find_requests(operation_id="é")


def test_a_search_over_all_accounts_ends_at_its_limit_and_says_so(
    acme: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for account_id in ("other", "acme"):
        admitted(ask("op-1", account_id=account_id))
    monkeypatch.setattr(lookup, "FOUND_MAX", 2)
    assert find_requests(operation_id="op-1").cut_at == 0
    monkeypatch.setattr(lookup, "FOUND_MAX", 1)
    found = find_requests(operation_id="op-1")
    assert ([account for _id, account in found.rows], found.cut_at) == (["acme"], 1)


def test_a_saved_body_is_read_whole(acme: None) -> None:
    body = body_with({"prompt_tokens": 1, "completion_tokens": 1}, filler="x" * (3 * 1024**2))
    row = row_of(answered(body=body))
    assert usage.result_body(request=row) == body


# --- the charge explained ---------------------------------------------------------------------


def test_a_charge_is_explained_step_by_step_from_stored_facts(acme: None) -> None:
    found = explain_charge(request=settled_row())
    assert found.steps == [
        "input: 9 x $2.5 / 1,000,000 = $0.0000225",
        "output: 4 x $10 / 1,000,000 = $0.00004",
        "reference cost: $0.0000625",
        "multiplier: $0.0000625 x 1 = $0.0000625",
        "rounded once, half-even, to 9 decimals: $0.0000625",
    ]
    assert found.agrees is True
    assert found.charge_nano == found.ledger.amount_nano == 62_500
    assert found.trouble == ""


def test_an_explanation_needs_no_result_body_and_writes_nothing(acme: None) -> None:
    row = settled_row()
    statements = Statements()
    with connection.execute_wrapper(statements):
        explain_charge(request=row)
    assert statements.touching("bz_usage_bodies") == []
    assert all(text.startswith("SELECT") for text in statements.texts)


def test_a_ledger_row_that_does_not_follow_from_the_facts_is_told(acme: None) -> None:
    row = settled_row()
    LedgerRow.objects.update(amount_nano=1)
    assert explain_charge(request=row).agrees is False


@pytest.mark.parametrize(
    "values",
    [{"usage_text": "not json"}, {"price_text": "[]"}, {"usage_text": '{"meters":{"gold":1}}'}],
    ids=lambda values: next(iter(values)),
)
def test_facts_that_cannot_be_read_are_told_and_no_error(
    acme: None, values: dict[str, str]
) -> None:
    row = settled_row()
    Request.objects.update(**values)
    found = explain_charge(request=row_of(row.id))
    assert found.trouble
    assert found.agrees is False


def test_what_is_not_settled_has_a_reason_instead_of_an_amount(acme: None) -> None:
    row = row_of(answered(body=body_with(None)))
    found = explain_charge(request=row)
    assert (found.ledger, found.charge_nano, found.agrees) == (None, None, None)
    assert "no usage" in found.why.means
    assert found.why.way_out


# --- reading is free --------------------------------------------------------------------------


def test_reading_a_result_any_number_of_times_charges_once(acme: None) -> None:
    row = settled_row()
    for _ in range(5):
        get_request(account_id="acme", operation_id="op-1")
        usage.result_body(request=row)
        explain_charge(request=row)
        usage.settle(items=[row.id])
    assert LedgerRow.objects.count() == 1


def test_reads_do_not_change_a_row(acme: None) -> None:
    fence = dispatched()
    saved(outcome_of(fence))
    before = Request.objects.values().get()
    get_request(account_id="acme", operation_id="op-1")
    explain_charge(request=row_of(fence.request_id))
    assert Request.objects.values().get() == before
