"""Corrections: a settled charge never changes; what was wrong is put right by a new row (A11b).

A correction is a ledger row of its own: the same request, no `charge_of`, a signed amount in billed
money. The request's row stays as it was settled; `consumed = sum(ledger)` holds at every commit.
"""

import json
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Sum

from kernel import audit, clock
from kernel.errors import Conflict, InvalidInput, LostRace, NotFound
from kernel.ids import new_id
from kernel.models import Account, LedgerRow, Request
from kernel.money import MULTIPLIER_ONE, NANO_MAX, nano_to_usd
from kernel.states import Billing
from kernel.transactions import reading, requires_transaction, transaction
from kernel.usage.settlement import consume_in_tx

CORRECTION_REASON_CHARS_MIN, CORRECTION_REASON_CHARS_MAX = 3, 4000
CORRECTION = "correction"


@dataclass(frozen=True, slots=True)
class Correction:
    """One correction as it may be shown: its ledger row, and who gave which reason."""

    ledger: LedgerRow
    by: str
    reason: str


class NotSettled(Conflict):
    """There is no charge to correct yet."""

    code = "not_settled"
    next_action = "Resolve the charge, or write it off; only a settled charge can be corrected."


@transaction
def post_correction(
    *,
    request_id: str,
    actor: audit.Actor,
    reason: str,
    amount_nano: int | None = None,
    total_nano: int | None = None,
    seen_total_nano: int | None = None,
) -> LedgerRow:
    """Put a settled charge right: one ledger row, the account and an audit row together (A11b).

    Give either `amount_nano`, signed, in nano-USD, or the request's corrected `total_nano`.
    `seen_total_nano` is the total the person saw: LostRace when it is another now. NotFound;
    NotSettled; AlreadyDone for an `act_key` that was used; InvalidInput for zero, a total below
    zero or beyond a column, or no reason. A correction that brings the account back to its cap or
    below it clears the overrun, one that passes the cap flags it (A15).
    """
    said = _checked_reason(reason)
    row = Request.objects.select_for_update().filter(id=request_id).first()
    if row is None:
        raise NotFound(f"no request {request_id}")
    audit.refuse_repeat_in_tx(actor=actor)
    if row.billing_state != Billing.SETTLED:
        raise NotSettled(
            f"request {row.id} is not settled but {row.billing_state}",
            billing_state=row.billing_state,
        )
    entries = LedgerRow.objects.filter(request_id=row.id)
    charge_id = entries.filter(charge_of=row.id).values_list("id", flat=True).first()
    before = int(entries.aggregate(total=Sum("amount_nano"))["total"] or 0)
    if seen_total_nano is not None and before != seen_total_nano:
        raise LostRace(f"the charge of {row.id} comes to ${nano_to_usd(before)} now")
    amount = _amount(before, amount_nano=amount_nano, total_nano=total_nano)
    now = clock.db_now()
    entry = LedgerRow(
        id=new_id("led"),
        account_id=row.account_id,
        request_id=row.id,
        charge_of=None,
        kind=CORRECTION,
        amount_nano=amount,
        reference_nano=0,  # no metering stands behind it
        multiplier_millionths=MULTIPLIER_ONE,
        lines_text=json.dumps(
            {"corrects": charge_id, "reason": said, "by": f"{actor.kind}:{actor.id}"},
            sort_keys=True,
        ),
        created_at=now,
    )
    entry.save(force_insert=True)
    audit.append_in_tx(
        actor=actor,
        action="request.correct",
        kind="request",
        object_id=row.id,
        before={"total_nano": before},
        after={"total_nano": before + amount, "correction_nano": amount, "ledger_id": entry.id},
        reason=said,
    )
    _move_account_in_tx(account_id=row.account_id, amount=amount, now=now)
    return entry


@reading
def corrections_of(*, request_id: str) -> tuple[Correction, ...]:
    """The corrections of one request, oldest first."""
    rows = LedgerRow.objects.filter(request_id=request_id, kind=CORRECTION)
    return tuple(_readable(row) for row in rows.order_by("created_at", "id"))


def _readable(row: LedgerRow) -> Correction:
    try:
        facts = json.loads(row.lines_text)
        return Correction(row, by=str(facts["by"]), reason=str(facts["reason"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return Correction(row, by="", reason="")


def _checked_reason(reason: str) -> str:
    said = reason.strip()
    if not CORRECTION_REASON_CHARS_MIN <= len(said) <= CORRECTION_REASON_CHARS_MAX:
        raise InvalidInput("say in a few words why the charge was wrong", field="reason")
    return said


def _amount(before: int, *, amount_nano: int | None, total_nano: int | None) -> int:
    if (amount_nano is None) == (total_nano is None):
        raise InvalidInput("give an amount or the corrected total, not both", field="amount_nano")
    given, field = (
        (total_nano, "total_nano") if amount_nano is None else (amount_nano, "amount_nano")
    )
    if type(given) is not int or abs(given) > NANO_MAX:
        raise InvalidInput("an amount is a whole number of nano-USD", field=field)
    amount = given if amount_nano is not None else given - before
    if amount == 0:
        raise InvalidInput("a correction of zero changes nothing", field=field)
    if before + amount < 0:
        raise InvalidInput(
            f"the charge comes to ${nano_to_usd(before)}; a correction cannot take it below zero",
            field=field,
        )
    if before + amount > NANO_MAX:
        raise InvalidInput("an amount this large cannot be stored", field=field)
    return amount


@requires_transaction
def _move_account_in_tx(*, account_id: str, amount: int, now: datetime) -> None:
    """The account moves last (lock order); its column must be able to hold the sum."""
    account = Account.objects.select_for_update().get(id=account_id)
    if account.consumed_nano + amount > NANO_MAX:
        raise InvalidInput("the account's sum would not fit its column", field="amount_nano")
    consume_in_tx(account_id=account_id, amount=amount, release=0, now=now)
    within = Account.objects.filter(id=account_id, consumed_nano__lte=F("cap_nano"))
    within.exclude(overrun_at=None).update(overrun_at=None)
