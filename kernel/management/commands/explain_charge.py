"""`manage.py explain_charge`: one charge, derived step by step from stored facts alone (A13)."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from kernel import usage
from kernel.errors import InvalidInput, NotFound
from kernel.management.base import EXIT_FAILED, KernelCommand, Options, add_json, shown
from kernel.management.prices import rates_lines
from kernel.models import Request
from kernel.money import format_multiplier, nano_to_usd
from kernel.usage.lookup import Explanation
from kernel.usage.pricing import Line, reported_gap
from kernel.usage.rates import decimal_text, from_plain

NAMED_MAX = 20  # accounts in an error text


class Command(KernelCommand):
    help = (
        "Explain the charge of a model request: usage, meters, rates, multiplier, rounding,"
        " ledger row, corrections; for a pending one the reason and the way out."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="an operation id, or a request id (req_...)")
        parser.add_argument(
            "--account", metavar="ID", help="the account, where several used the id"
        )
        add_json(parser)

    def run(self, options: Options) -> None:
        request = find(options["id"], account_id=options["account"])
        found = usage.explain_charge(request=request)
        if options["json"]:
            self.document(_plain(found))
        else:
            self._head(found)
            self._usage(found)
            self._price(found)
            self._charge(found)
        if found.trouble:
            raise CommandError(found.trouble, returncode=EXIT_FAILED)
        if found.agrees is False:
            raise CommandError(
                "The ledger row is not what the stored metering, price and multiplier give."
                " Something changed rows outside the product: run db_verify and audit_verify.",
                returncode=EXIT_FAILED,
            )

    def _head(self, found: Explanation) -> None:
        row = found.request
        self.say(
            f"Operation {row.operation_id} of account {row.account_id} (request {row.id})",
            f"  service {row.service_id} at version {row.service_version}",
            f"  admitted {shown(row.admitted_at)}, dispatched {shown(row.dispatched_at)},"
            f" result {shown(row.result_at)}, settled {shown(row.settled_at)}",
            f"  result {row.result_state}, billing {_billing(row)}",
            f"  {found.why.means}",
        )
        if found.why.way_out:
            self.say(f"  Way out: {found.why.way_out}")
        if row.hold_nano and row.billing_state in ("open", "pending"):
            self.say(f"  Its hold of ${nano_to_usd(row.hold_nano)} stays until then.")

    def _usage(self, found: Explanation) -> None:
        if not found.usage:
            self.say("", "Metering: none is saved.")
            return
        self.say("", "Raw usage, as the provider reported it:")
        self.say(f"  {shown(found.usage.get('raw'))}")
        self.say("Meters, each token in one of them:")
        meters = found.usage.get("meters")
        for unit, count in meters.items() if isinstance(meters, dict) else ():
            self.say(f"  {shown(unit)}: {shown(count)}")
        if found.usage.get("service_tier"):
            self.say(f"  service tier: {shown(found.usage['service_tier'])}")
        if found.usage.get("reason"):
            detail = found.usage.get("detail") or found.usage["reason"]
            self.say(f"  not to be charged: {shown(detail)}")
        if found.request.late_usage_text:
            self.say("Late usage, recorded and not charged:")
            self.say(f"  {shown(found.request.late_usage_text)}")

    def _price(self, found: Explanation) -> None:
        price = found.price
        if not price:
            self.say("", "Price: none was valid when it was admitted.")
            return
        name = shown(f"{price.get('provider')}/{price.get('model')}")
        self.say(
            "",
            f"Price: {name}, {shown(price.get('source'))} version"
            f" {shown(price.get('version'))}, in USD per million:",
        )
        self.say(*(f"  {line}" for line in _rates(price)))

    def _charge(self, found: Explanation) -> None:
        ledger = found.ledger
        if ledger is None:
            self._no_charge(found)
            return
        self.say("", "Charge:", *(f"  {shown(step)}" for step in found.steps))
        self.say(
            f"Ledger row {ledger.id}: {ledger.kind} of ${nano_to_usd(ledger.amount_nano)},"
            f" written {shown(ledger.created_at)}."
        )
        for one in found.corrections:
            self.say(
                f"Correction {one.ledger.id}: ${nano_to_usd(one.ledger.amount_nano)},"
                f" written {shown(one.ledger.created_at)} by {shown(one.by)}: {shown(one.reason)}"
            )
        if found.corrections and found.total_nano is not None:
            self.say(f"Charge and corrections: ${nano_to_usd(found.total_nano)}.")
        if found.agrees:
            self.say("Worked out again from the stored facts: the same amount, line by line.")
        gap = _gap(found)
        if gap is not None:
            self.say(
                f"The provider's own figure is {gap} than the reference cost;"
                " it is evidence, never a charge."
            )

    def _no_charge(self, found: Explanation) -> None:
        charge = found.charge
        self.say("", "Charge: no ledger row.")
        if charge is None:
            return
        self.say(*(f"  {_line(line)}" for line in charge.lines))
        if charge.reason:
            self.say(f"  missing: {shown(charge.detail or charge.reason)}")
        elif found.charge_nano is not None:
            factor = format_multiplier(found.request.multiplier_millionths)
            self.say(f"  times the multiplier {factor}: ${nano_to_usd(found.charge_nano)} is due")


def find(text: str, *, account_id: str | None) -> Request:
    """The request of an operation id or a request id. NotFound; InvalidInput when several match."""
    if account_id:
        return usage.get_request(account_id=account_id, operation_id=text)
    found = usage.find_requests(operation_id=text)
    if len(found.rows) > 1:
        names = ", ".join([account for _id, account in found.rows[:NAMED_MAX]])
        names += ", ..." * (len(found.rows) > NAMED_MAX)
        count = f"{len(found.rows)}{'+' * bool(found.cut_at)}"
        raise InvalidInput(
            f"operation {text} exists in {count} accounts: {names}",
            field="operation",
            next_action="Say which with --account.",
        )
    text = found.rows[0][0] if found.rows else text
    try:
        return usage.get_request_by_id(request_id=text)
    except NotFound:
        raise NotFound(
            f"no operation and no request {text} in any account",
            next_action="Ids are case-sensitive.",
        ) from None


def _billing(row: Request) -> str:
    return f"{row.billing_state}({row.pending_reason})" if row.pending_reason else row.billing_state


def _rates(price: dict[str, Any]) -> list[str]:
    try:
        return rates_lines(from_plain(price.get("rates") or {}))
    except (InvalidInput, AttributeError, TypeError):
        return ["its rates cannot be read"]


def _line(line: Line) -> str:
    return f"{line.unit}: {line.count} x ${line.usd_per_million} / 1,000,000 = ${line.amount_usd}"


def _gap(found: Explanation) -> str | None:
    if found.charge is None or found.charge.reference_usd is None:
        return None
    try:
        gap = reported_gap(found.charge.reference_usd, found.usage.get("reported_cost_usd"))
    except ArithmeticError:
        return None
    if gap is None:
        return None
    cost = decimal_text(found.charge.reference_usd + gap)
    return f"${cost}, ${decimal_text(abs(gap))} {'less' if gap < 0 else 'more'}"


def _plain(found: Explanation) -> dict[str, Any]:
    row, ledger, charge = found.request, found.ledger, found.charge
    lines = found.lines if ledger else (charge.lines if charge else ())
    return {
        "operation_id": row.operation_id,
        "account_id": row.account_id,
        "request_id": row.id,
        "service_id": row.service_id,
        "service_version": row.service_version,
        "result_state": row.result_state,
        "billing_state": row.billing_state,
        "pending_reason": row.pending_reason or None,
        "why": found.why.means,
        "way_out": found.why.way_out or None,
        "hold_usd": nano_to_usd(row.hold_nano),
        "usage": found.usage or None,
        "late_usage": row.late_usage_text or None,
        "price": found.price or None,
        "lines": [line_document(line) for line in lines],
        "missing": charge.detail or charge.reason if charge and charge.reason else None,
        "multiplier": format_multiplier(row.multiplier_millionths),
        "reference_usd": found.reference_usd or None,
        "steps": found.steps,
        "worked_out_usd": _usd(found.charge_nano),
        "ledger": ledger
        and {
            "ledger_id": ledger.id,
            "kind": ledger.kind,
            "amount_usd": nano_to_usd(ledger.amount_nano),
            "created_at": ledger.created_at,
        },
        "corrections": [
            {
                "ledger_id": one.ledger.id,
                "amount_usd": nano_to_usd(one.ledger.amount_nano),
                "by": one.by,
                "reason": one.reason,
                "created_at": one.ledger.created_at,
            }
            for one in found.corrections
        ],
        "total_usd": _usd(found.total_nano),
        "agrees": found.agrees,
        "trouble": found.trouble or None,
        "times": {
            "admitted_at": row.admitted_at,
            "dispatched_at": row.dispatched_at,
            "result_at": row.result_at,
            "settled_at": row.settled_at,
        },
    }


def line_document(line: Line) -> dict[str, Any]:
    """One line of a charge as JSON values."""
    return {
        "unit": line.unit,
        "count": line.count,
        "usd_per_million": line.usd_per_million,
        "amount_usd": line.amount_usd,
    }


def _usd(nano: int | None) -> str | None:
    return None if nano is None else nano_to_usd(nano)
