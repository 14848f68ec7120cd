"""Reads: one request, its bodies, its charge explained from stored facts."""

import json
from dataclasses import dataclass
from typing import Any

from kernel.errors import Gone, NotFound
from kernel.models import LedgerRow, Request
from kernel.transactions import reading
from kernel.usage.bodies import read_body
from kernel.usage.pricing import Line, explain, lines_from_text


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
            next_action="The metering and the ledger row stay; use a new operation id to generate again.",
        )
    body = read_body(request_id=request.id, kind="result")
    if body is None:
        raise NotFound("no result was saved", code="no_result")
    return body


@dataclass(frozen=True, slots=True)
class Explanation:
    """A charge derived from stored facts alone: the request, its ledger row and the parsed lines."""

    request: Request
    ledger: LedgerRow | None
    price: dict[str, Any]
    lines: tuple[Line, ...]
    steps: list[str]
    reference_usd: str
    usage: dict[str, Any]


@reading
def explain_charge(*, request: Request) -> Explanation:
    """How the charge of a request came about (A13)."""
    ledger = LedgerRow.objects.filter(charge_of=request.id).first()
    facts = json.loads(ledger.lines_text) if ledger else {}
    lines = lines_from_text(json.dumps(facts.get("lines", [])))
    price = facts.get("price") or (json.loads(request.price_text) if request.price_text else {})
    return Explanation(
        request=request,
        ledger=ledger,
        price=price,
        lines=lines,
        steps=explain(lines, multiplier=request.multiplier_millionths) if ledger else [],
        reference_usd=facts.get("reference_usd", ""),
        usage=json.loads(request.usage_text) if request.usage_text else {},
    )
