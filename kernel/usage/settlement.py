"""Settlement: saved metering x frozen price x multiplier = one ledger row (A11-A14, B2, B3).

Reads no result body, calls no provider, dispatches nothing. One ledger row per request: the unique
key `charge_of`. `consumed = sum(ledger)` per account holds at every commit.
"""

import logging
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from kernel import clock
from kernel.errors import LostRace
from kernel.ids import new_id
from kernel.models import LedgerRow, Request
from kernel.money import MULTIPLIER_ONE
from kernel.runtime.maintenance import PageReport
from kernel.sql import execute_in_tx, insert_rows_in_tx, lock_free_in_tx, values
from kernel.states import Billing
from kernel.transactions import (
    LockWaits,
    concerns_all,
    is_lock_wait,
    reading,
    requires_transaction,
    short_lock_waits,
    transaction,
)
from kernel.usage import pricing
from kernel.usage.catalog import price_for_request_in_tx
from kernel.usage.metering import Metering
from kernel.usage.notices import tell_unpriced_in_tx
from kernel.usage.sql import CONSUME, locked_values_in_tx, settle_rows_in_tx

log = logging.getLogger(__name__)

CORRUPT = "corrupt"
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)


class Owing(NamedTuple):
    """All that settlement reads of a request: these columns, as plain values."""

    id: str
    account_id: str
    service_id: str
    upstream_model: str
    billing_state: str
    pending_reason: str
    multiplier_millionths: int
    price_text: str
    hold_nano: int
    usage_text: str
    admitted_at: datetime

    @classmethod
    def of(cls, row: Request) -> "Owing":
        """The same of a whole row."""
        return cls(*[getattr(row, name) for name in cls._fields])


@dataclass(frozen=True, slots=True)
class Posting:
    """One charge about to be posted: request, ledger row, and the price it had not before."""

    request: Owing
    ledger: LedgerRow
    late_price_text: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """What settlement made of one request: its billing state and why it waits."""

    request_id: str
    billing_state: str
    pending_reason: str


@transaction
def settle(*, items: Sequence[str]) -> list[Settled | Exception]:
    """Settle pending requests by id; one transaction, each charged at most once (A14).

    Safe to repeat after a lost commit: the rows are locked and a settled one is only reported.
    """
    rows = [Owing(*one) for one in locked_values_in_tx(Request, Owing._fields, {"id": items})]
    charges, deferrals = _charges(row for row in rows if row.billing_state == Billing.PENDING)
    _record_deferrals_in_tx(deferrals)  # what it tells comes before the account rows
    post_charges_in_tx(charges=charges)
    reasons = {row.id: reason for row, reason in deferrals}
    charged = {charge.request.id for charge in charges}
    found = {
        row.id: Settled(
            row.id,
            Billing.SETTLED if row.id in charged else row.billing_state,
            reasons.get(row.id, "" if row.id in charged else row.pending_reason),
        )
        for row in rows
    }
    return [found.get(item, Settled(item, "", "")) for item in items]


def settlement_page(*, cursor: tuple[datetime, str] | None, limit: int) -> PageReport:
    """One page of pending requests in (updated_at, id) order after `cursor` (B3).

    A page that fails as a whole is settled by account and then row by row: neither a bad row nor
    one that somebody has locked keeps others waiting. What is locked is left for a later pass.
    """
    page = _page_ids(cursor, limit)
    ids = [request_id for _, request_id in page]
    try:
        outcomes = settle(items=ids) if ids else []
    except Exception as error:
        if concerns_all(error) and not is_lock_wait(error):
            raise
        with short_lock_waits():
            outcomes = _settle_by_account(ids)
    found = [outcome for outcome in outcomes if isinstance(outcome, Settled)]
    done = sum(outcome.billing_state == Billing.SETTLED for outcome in found)
    corrupt = sum(outcome.pending_reason == CORRUPT for outcome in found)
    return PageReport(
        scanned=len(ids),
        settled=done,
        deferred=len(ids) - done - corrupt,
        failed=corrupt,
        cursor=page[-1] if len(page) == limit else None,
    )


def _settle_by_account(ids: Sequence[str]) -> list[Settled | Exception]:
    """Settle what nobody has locked, account by account; nothing for what waits."""
    waits = LockWaits()
    outcomes: list[Settled | Exception] = []
    accounts = list(_free_by_account(ids=ids).values())
    random.shuffle(accounts)  # the same locked ones must not always come first
    for account_ids in accounts:
        if waits.are_enough:
            break
        try:
            outcomes += settle(items=account_ids)
        except Exception as error:
            if waits.bears(error):
                log.warning("an account is locked: %s requests wait", len(account_ids))
            elif concerns_all(error):
                raise
            else:
                outcomes += _settle_one_by_one(account_ids, waits)
    waits.end(done=len(outcomes))
    return outcomes


@transaction
def _free_by_account(*, ids: Sequence[str]) -> dict[str, list[str]]:
    """Those of these requests that nobody has locked, by account."""
    found: dict[str, list[str]] = defaultdict(list)
    free = lock_free_in_tx(Request, ids)
    for request_id, account_id in values(Request, ("id", "account_id"), {"id": sorted(free)}):
        found[account_id].append(request_id)
    return found


def _settle_one_by_one(ids: Sequence[str], waits: LockWaits) -> list[Settled | Exception]:
    outcomes: list[Settled | Exception] = []
    for request_id in ids:
        try:
            outcomes += settle(items=[request_id])
        except Exception as error:
            if waits.bears(error):
                break  # its account is locked
            if concerns_all(error):
                raise
            log.warning("request %s cannot be settled: %s", request_id, type(error).__name__)
            outcomes.append(_set_aside(request_id=request_id))
    return outcomes


@transaction
def _set_aside(*, request_id: str) -> Settled:
    """Note that this request cannot be settled. Raises where not the row is at fault."""
    Request.objects.filter(id=request_id, billing_state=Billing.PENDING).update(
        pending_reason=CORRUPT
    )
    return Settled(request_id, Billing.PENDING, CORRUPT)


def _charges(
    rows: Iterable[Owing],
) -> tuple[list[Posting], list[tuple[Owing, str]]]:
    now = clock.db_now()
    charges: list[Posting] = []
    deferrals: list[tuple[Owing, str]] = []
    for row in rows:
        try:
            charge = charge_for(row, now=now)
        except UNREADABLE:
            log.warning("request %s has stored facts that cannot be read", row.id)
            charge = CORRUPT
        if isinstance(charge, str):
            deferrals.append((row, charge))
        else:
            charges.append(charge)
    return charges, deferrals


def charge_for(row: Owing, *, now: datetime) -> Posting | str:
    """What a pending request owes, or the reason why it still waits (A11, A11b).

    Pure but for one lookup: a request admitted without a price is priced by an operator price valid
    at its admission. Raises one of UNREADABLE when the stored facts are corrupt.
    """
    if not row.usage_text:
        return row.pending_reason or "no_usage"
    metering = Metering.from_text(row.usage_text)
    if metering.reason:
        return metering.reason
    late_price_text = "" if row.price_text else _late_price_text(row)
    price_text = row.price_text or late_price_text
    if not price_text:
        return "unpriced"
    charge = pricing.price(pricing.PriceSnapshot.from_text(price_text), metering)
    if charge.reason or charge.reference_usd is None:
        return charge.reason or "unpriced"
    ledger = LedgerRow(
        id=new_id("led"),
        account_id=row.account_id,
        request_id=row.id,
        charge_of=row.id,
        kind="charge",
        amount_nano=pricing.charge_nano(charge.reference_usd, row.multiplier_millionths),
        reference_nano=pricing.charge_nano(charge.reference_usd, MULTIPLIER_ONE),
        multiplier_millionths=row.multiplier_millionths,
        # Spliced: both are JSON texts that were just read or written.
        lines_text=(
            f'{{"lines":{pricing.lines_text(charge.lines)},"price":{price_text},'
            f'"reference_usd":"{charge.reference_usd:f}"}}'
        ),
        created_at=now,
    )
    return Posting(row, ledger, late_price_text)


def _late_price_text(row: Owing) -> str:
    found = price_for_request_in_tx(
        service_id=row.service_id, model=row.upstream_model, admitted_at=row.admitted_at
    )
    return found.to_text() if found else ""


@requires_transaction
def post_charges_in_tx(*, charges: Sequence[Posting]) -> None:
    """Insert ledger rows, settle their requests, move the accounts: bulk, accounts last (A14).

    Every request must be locked and pending; a duplicate `charge_of` fails the whole transaction.
    """
    if not charges:
        return
    insert_rows_in_tx([charge.ledger for charge in charges])
    now = charges[0].ledger.created_at
    ids = [charge.request.id for charge in charges]
    settled = settle_rows_in_tx(ids, before=Billing.PENDING, after=Billing.SETTLED, now=now)
    if settled != len(ids):
        raise LostRace("a request to be charged is not pending any more")
    for charge in charges:
        if charge.late_price_text:
            Request.objects.filter(id=charge.request.id).update(price_text=charge.late_price_text)
    consumed: dict[str, int] = defaultdict(int)
    held: dict[str, int] = defaultdict(int)
    for charge in charges:
        consumed[charge.ledger.account_id] += charge.ledger.amount_nano
        held[charge.ledger.account_id] += charge.request.hold_nano
    for account_id in sorted(consumed):
        consume_in_tx(
            account_id=account_id, amount=consumed[account_id], release=held[account_id], now=now
        )


@requires_transaction
def consume_in_tx(*, account_id: str, amount: int, release: int, now: datetime) -> None:
    """Add `amount` nano-USD to consumed and give `release` back; flags an overrun once (A15)."""
    execute_in_tx(CONSUME, [amount, now, amount, release, account_id])


@requires_transaction
def _record_deferrals_in_tx(deferrals: Sequence[tuple[Owing, str]]) -> None:
    """Note why rows wait, and tell once what has no price.

    `updated_at` does not move, so the page order stays (B3).
    """
    by_reason: dict[str, list[str]] = defaultdict(list)
    for row, reason in deferrals:
        if row.pending_reason != reason:
            by_reason[reason].append(row.id)
    for reason, ids in by_reason.items():
        Request.objects.filter(id__in=ids, billing_state=Billing.PENDING).update(
            pending_reason=reason
        )
        if reason in pricing.REASONS:
            tell_unpriced_in_tx(ids, reason=reason)


@reading
def _page_ids(cursor: tuple[datetime, str] | None, limit: int) -> list[tuple[datetime, str]]:
    after = ""
    parameters: list[datetime | str] = []
    if cursor is not None:
        at, request_id = cursor
        # This form of the keyset uses the index on MariaDB; a row tuple would scan all of it.
        after = "AND updated_at >= %s AND (updated_at > %s OR id > %s)"
        parameters = [at, at, request_id]
    found = values(
        Request,
        ("updated_at", "id"),
        {"billing_state": Billing.PENDING},
        more=f"{after} ORDER BY updated_at, id LIMIT %s",
        parameters=[*parameters, limit],
    )
    return [(at, request_id) for at, request_id in found]
