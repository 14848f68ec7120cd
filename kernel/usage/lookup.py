"""Reads: one request, its bodies, its charge explained from stored facts."""

import json
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import Model

from kernel.errors import Gone, NotFound
from kernel.ids import check_id
from kernel.models import Account, LedgerRow, Request
from kernel.transactions import reading
from kernel.usage import pricing
from kernel.usage.bodies import read_body
from kernel.usage.corrections import Correction, corrections_of
from kernel.usage.metering import Metering
from kernel.usage.pricing import Charge, Line, PriceSnapshot, explain, lines_from_text
from kernel.usage.reasons import Reason, why
from kernel.usage.settlement import UNREADABLE

FOUND_MAX = 100  # rows of one caller's id, each of another account


@reading
def get_request(*, account_id: str, operation_id: str) -> Request:
    """The request of one account's operation. NotFound also for another account's operation."""
    row = Request.objects.filter(account_id=account_id, operation_id=operation_id).first()
    if row is None:
        raise NotFound(
            f"no operation {operation_id} in this account",
            next_action="Check the operation id; it is case-sensitive.",
        )
    return row


@reading
def get_request_by_id(*, request_id: str) -> Request:
    """The request with this request id. NotFound."""
    row = Request.objects.filter(id=request_id).first()
    if row is None:
        raise NotFound(f"no request {request_id}")
    return row


@reading
def result_body(*, request: Request) -> bytes:
    """The saved result bytes. Gone after the purge, NotFound when none was ever saved (A8, A17)."""
    if request.purged_at is not None:
        raise Gone(
            "The saved answer was removed after its retention.",
            next_action="Metering and ledger row stay; use a new operation id to generate again.",
        )
    body = read_body(request_id=request.id, kind="result")
    if body is None:
        raise NotFound("no result was saved", code="no_result")
    return body


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of one caller's id in all accounts: (row id, account id) by account.

    `cut_at`: how many were found when the search ended before the last account; 0 = these are all.
    """

    rows: tuple[tuple[str, str], ...]
    cut_at: int = 0


def find_requests(*, operation_id: str) -> Found:
    """The requests of this operation id in all accounts. InvalidId."""
    return find_in_accounts(model=Request, column="operation_id", value=operation_id)


@reading
def find_in_accounts(*, model: type[Model], column: str, value: str) -> Found:
    """The rows whose unique key is (an account, `value` in `column`), at most FOUND_MAX. InvalidId.

    One look into the unique key per account, in one statement that ends at the limit. Left alone,
    the database may read all rows of all accounts first: the order of the join is ours.
    """
    check_id(value, field=column)
    join = "STRAIGHT_JOIN" if connection.vendor == "mysql" else "CROSS JOIN"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT found.id, known.id FROM {Account._meta.db_table} AS known"
            f" {join} {model._meta.db_table} AS found"
            f" ON found.account_id = known.id AND found.{column} = %s"
            " ORDER BY known.id LIMIT %s",
            [value, FOUND_MAX + 1],
        )
        rows = tuple(cursor.fetchall())
    return Found(rows[:FOUND_MAX], FOUND_MAX if len(rows) > FOUND_MAX else 0)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A charge from stored facts alone: the request, its ledger row, and the charge worked out.

    `ledger` None = not settled; `why` says what that means and the way out. `charge` is computed
    from the stored metering and price, not read from the ledger; `agrees` says whether both are
    the same. `corrections` came after it. `trouble` is set when a stored fact cannot be read.
    """

    request: Request
    ledger: LedgerRow | None
    price: dict[str, Any]
    lines: tuple[Line, ...]
    steps: list[str]
    reference_usd: str
    usage: dict[str, Any]
    why: Reason
    charge: Charge | None = None
    charge_nano: int | None = None
    agrees: bool | None = None
    trouble: str = ""
    corrections: tuple[Correction, ...] = ()

    @property
    def total_nano(self) -> int | None:
        """What the account paid for it: the charge and its corrections. None = not settled."""
        if self.ledger is None:
            return None
        return self.ledger.amount_nano + sum(one.ledger.amount_nano for one in self.corrections)


@reading
def explain_charge(*, request: Request) -> Explanation:
    """How the charge of a request came about, or why there is none (A13). Reads no result body."""
    ledger = LedgerRow.objects.filter(charge_of=request.id).first()
    trouble: list[str] = []
    facts = _stored_object(ledger.lines_text, "ledger row", trouble) if ledger else {}
    usage = _stored_object(request.usage_text, "metering", trouble)
    price = facts.get("price")
    if not isinstance(price, dict):
        price = _stored_object(request.price_text, "price", trouble)
    lines: tuple[Line, ...] = ()
    charge = amount = None
    try:
        lines = lines_from_text(json.dumps(facts.get("lines", [])))
        charge = _charge_of(request)
        if charge is not None and charge.reference_usd is not None:
            amount = pricing.charge_nano(charge.reference_usd, request.multiplier_millionths)
    except UNREADABLE as error:
        trouble.append(f"The charge cannot be worked out: {error}.")
    return Explanation(
        request=request,
        ledger=ledger,
        price=price,
        lines=lines,
        steps=explain(lines, multiplier=request.multiplier_millionths) if lines else [],
        reference_usd=facts.get("reference_usd", ""),
        usage=usage,
        why=why(request),
        charge=charge,
        charge_nano=amount,
        agrees=_agrees(request, ledger, lines, charge, amount) if ledger else None,
        trouble=" ".join(trouble),
        corrections=corrections_of(request_id=request.id) if ledger else (),
    )


def _stored_object(text: str, what: str, trouble: list[str]) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
        if type(value) is dict:
            return value
    except (ValueError, RecursionError):
        pass
    trouble.append(f"The stored {what} cannot be read.")
    return {}


def _charge_of(request: Request) -> Charge | None:
    if not request.usage_text:
        return None
    snapshot = PriceSnapshot.from_text(request.price_text) if request.price_text else None
    return pricing.price(snapshot, Metering.from_text(request.usage_text))


def _agrees(
    request: Request,
    ledger: LedgerRow,
    lines: tuple[Line, ...],
    charge: Charge | None,
    amount: int | None,
) -> bool:
    """Whether the ledger row is what the request's own metering, price and multiplier give."""
    return (
        charge is not None
        and charge.lines == lines
        and ledger.multiplier_millionths == request.multiplier_millionths
        and amount == ledger.amount_nano == request.billed_nano
    )
