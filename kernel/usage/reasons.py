"""Why a charge waits or is not owed, in words, and the way out: a text per reason (A7, A11b)."""

from dataclasses import dataclass

from kernel.models import Request
from kernel.states import Billing, Result
from kernel.usage import metering, pricing

EVIDENCE = (
    "Ask the provider what it metered, then resolve the charge with that evidence,"
    " or write it off; both are audited."
)
OUTCOME = (
    "Ask the provider what became of it, then resolve the unknown outcome with that evidence."
    " It is never sent again."
)
NOT_RECEIVED = "No usage was received."


@dataclass(frozen=True, slots=True)
class Reason:
    """What a billing state means for one request, and what a person may do ('' = nothing to do)."""

    means: str
    way_out: str = ""


REASONS: dict[str, Reason] = {
    **{name: Reason(means, EVIDENCE) for name, means in metering.REASONS.items()},
    "truncated": Reason("The answer broke off before it reported its usage.", EVIDENCE),
    "unpriced": Reason(
        pricing.REASONS["unpriced"],
        "Name a price on the service if it has none, then add an operator price that is valid at"
        " the request's admission (price add ... --from ...); the next pass settles it."
        " Or write it off.",
    ),
    "unpriced_unit": Reason(
        pricing.REASONS["unpriced_unit"] + " The price is frozen; it is not changed afterwards.",
        "Resolve the charge with evidence whose units have rates, or write it off. For later"
        " requests add a price with this unit.",
    ),
    "unpriced_tier": Reason(
        pricing.REASONS["unpriced_tier"] + " The price is frozen; it is not changed afterwards.",
        "Resolve the charge with evidence, or write it off. For later requests add a price with"
        " rates such as input@priority.",
    ),
    "corrupt": Reason(
        "The stored metering or price cannot be read; the row was changed outside the product.",
        "Run db_verify and audit_verify; then resolve the charge with evidence, or write it off.",
    ),
    "rejected": Reason("The provider refused it before it generated anything."),
    "not_sent": Reason("Proven: no byte of it left this process."),
    "cancelled": Reason("It was cancelled before it was sent."),
    "not_executed": Reason("An operator found that the provider did not execute it."),
    "written_off": Reason("An operator decided that it is never charged."),
}


def why(request: Request) -> Reason:
    """What the billing state of `request` means, and the way out of it. Pure."""
    if request.billing_state == Billing.SETTLED:
        return Reason("One ledger row exists; it never changes.")
    if request.billing_state == Billing.OPEN:
        return _open(request)
    known = REASONS.get(request.pending_reason)
    if request.billing_state == Billing.NOT_CHARGED:
        return Reason(known.means if known else "Nothing is owed.")
    if request.result_state == Result.UNKNOWN:
        means = "It was sent, and its outcome is not known."
        if request.pending_reason == "no_usage":  # the provider may have reported it to nobody
            return Reason(f"{means} {NOT_RECEIVED}", OUTCOME)
        return Reason(f"{means} {known.means}" if known else means, OUTCOME)
    if known is None:
        return Reason(
            "Its usage is saved; it waits for settlement.",
            "Nothing to do: the next settlement pass charges it (maintain --once runs one now).",
        )
    if request.result_state == Result.CANCELLED and request.pending_reason == "no_usage":
        return Reason(
            "It was cancelled after it was sent; what it used is not known yet.",
            f"Late usage is charged by itself. If none comes: {EVIDENCE[0].lower()}{EVIDENCE[1:]}",
        )
    if request.error_code == "resolved_executed" and request.pending_reason == "no_usage":
        return Reason(NOT_RECEIVED, known.way_out)
    return known


def _open(request: Request) -> Reason:
    if request.result_state == Result.ADMITTED:
        return Reason(
            "It is durable and was not sent, so nothing is owed. Its hold stays.",
            "Dispatch or cancel it under its own operation id; neither happens by itself.",
        )
    return Reason(
        "It was sent and its answer is awaited. Its hold stays.",
        "Wait for the answer. If its owner died, it becomes unknown when its lease ends.",
    )
