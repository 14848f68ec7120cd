"""What the page of one request shows, and its forms."""

from datetime import datetime
from typing import Any

from django import forms
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.acting import version_of
from console.bodies import body_view
from console.forms import ConsoleForm, NoteField
from console.queries.audit import acts_on
from console.queries.retention import BODIES, removed_at
from console.statuses import status_of
from console.timeline import Step
from console.untrusted import to_html
from console.words import act_text, usd_text
from kernel import usage
from kernel.audit import Actor
from kernel.conf import conf
from kernel.models import Account, Request, Service
from kernel.money import format_multiplier
from kernel.states import Billing, Result
from kernel.usage.reasons import why

RESOLVED = {
    "resolved_executed": gettext_lazy("An operator found that it was executed."),
    "resolved_not_executed": gettext_lazy("An operator found that it was not executed."),
}
EXECUTED, NOT_METERED, NOT_EXECUTED = "executed", "not_metered", "not_executed"
WRITE_OFF = "write_off"
UNPRICED = "unpriced"
ACTS_SHOWN = 20


class ConfirmForm(ConsoleForm):
    """A confirmation with an optional note."""

    note = NoteField(required=False)


class ResolveForm(ConsoleForm):
    """What an operator found at the provider. Which outcomes are offered depends on the state."""

    outcome = forms.ChoiceField(label=gettext_lazy("What happened"), widget=forms.RadioSelect)
    provider_request_id = forms.CharField(
        label=gettext_lazy("Provider's id"), required=False, max_length=200
    )
    input_tokens = forms.IntegerField(
        label=gettext_lazy("Input tokens"), required=False, min_value=0, max_value=10**12
    )
    cached_tokens = forms.IntegerField(
        label=gettext_lazy("Cached input"), required=False, min_value=0, max_value=10**12
    )
    output_tokens = forms.IntegerField(
        label=gettext_lazy("Output tokens"), required=False, min_value=0, max_value=10**12
    )
    note = NoteField(label=gettext_lazy("How do you know?"))

    def __init__(self, *args: Any, row: Request, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.row = row
        self.fields["outcome"].choices = _outcomes(row)  # type: ignore[attr-defined]  # it has
        # Metering does not help a charge that waits for a price, nor one that is settled.
        self.takes_metering = (
            row.result_state == Result.UNKNOWN or row.pending_reason != UNPRICED
        ) and row.billing_state != Billing.SETTLED
        if not self.takes_metering and row.result_state != Result.UNKNOWN:
            self.initial.setdefault("outcome", WRITE_OFF)
            self["note"].label = _("Why")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        given = [cleaned.get(name) for name in ("input_tokens", "output_tokens")]
        both = all(value is not None for value in given)
        some = any(value is not None for value in given) or cleaned.get("cached_tokens") is not None
        if cleaned.get("outcome") == EXECUTED and self.takes_metering and not both:
            is_unknown = self.row.result_state == Result.UNKNOWN
            if some or not (is_unknown and usage.saved_metering_counts(self.row)):
                self.add_error("input_tokens", _("A charge needs input and output tokens."))
        if cleaned.get("outcome") == NOT_METERED and some:
            self.add_error("outcome", _("You gave tokens: choose to charge them, or clear them."))
        return cleaned

    def apply(self, *, actor: Actor, seen_updated_at: datetime) -> Request:
        """Hand the outcome to the kernel; raises its errors."""
        data = self.cleaned_data
        common = {
            "request_id": self.row.id,
            "note": data["note"],
            "actor": actor,
            "seen_updated_at": seen_updated_at,
        }
        if data["outcome"] == WRITE_OFF:
            return usage.write_off(**common)
        evidence = usage.Evidence(
            executed=data["outcome"] in (EXECUTED, NOT_METERED),
            provider_request_id=data["provider_request_id"],
            usage=self._usage() if data["outcome"] == EXECUTED else None,
        )
        if self.row.result_state == Result.UNKNOWN:
            return usage.resolve_unknown(evidence=evidence, **common)
        return usage.resolve_pending(evidence=evidence, **common)

    def _usage(self) -> dict[str, Any] | None:
        data = self.cleaned_data
        if data["input_tokens"] is None:
            return None
        usage_report: dict[str, Any] = {
            "prompt_tokens": data["input_tokens"],
            "completion_tokens": data["output_tokens"],
        }
        if data["cached_tokens"]:
            usage_report["prompt_tokens_details"] = {"cached_tokens": data["cached_tokens"]}
        return usage_report


def _outcomes(row: Request) -> list[tuple[str, str]]:
    if row.result_state == Result.UNKNOWN and row.billing_state == Billing.SETTLED:
        return [
            (EXECUTED, _("It was executed: its charge stays as it is")),
            (NOT_EXECUTED, _("It was not executed: its charge stays until somebody corrects it")),
        ]
    if row.result_state == Result.UNKNOWN and usage.saved_metering_counts(row):
        return [
            (EXECUTED, _("It was executed: charge this metering, or without one the saved")),
            (NOT_EXECUTED, _("It was not executed: nothing is owed")),
        ]
    if row.result_state == Result.UNKNOWN:
        return [
            (EXECUTED, _("It was executed: charge this metering")),
            (NOT_METERED, _("It was executed, metering not known: the charge stays pending")),
            (NOT_EXECUTED, _("It was not executed: nothing is owed")),
        ]
    write_off = (WRITE_OFF, _("Write it off: never charge it"))
    if row.pending_reason == UNPRICED:
        return [write_off]
    return [(EXECUTED, _("Charge this metering")), write_off]


def outcome_text(row: Request, outcome: str) -> str:
    """The label of an outcome that a person chose for this request; '?' for no such choice."""
    return dict(_outcomes(row)).get(outcome, "?")


def detail_context(row: Request, *, form: ResolveForm | None = None) -> dict[str, Any]:
    """Everything templates/console/requests/detail.html names."""
    explanation = usage.explain_charge(request=row)
    resolvable = can_resolve(row)
    return {
        "row": row,
        "version": version_of(row.updated_at),
        "may_change": row.billing_state in (Billing.OPEN, Billing.PENDING),
        "acts": [
            {"row": act, "text": act_text(act.action)}
            for act in acts_on(f"request:{row.id}", count=ACTS_SHOWN)
        ],
        "account": Account.objects.filter(id=row.account_id).first(),
        "service": Service.objects.filter(id=row.service_id).first(),
        "steps": steps_of(row),
        "charge": _charge(explanation),
        "charge_reason": f"{why(row).means} {why(row).way_out}".strip(),
        "error": _result_text(row) if row.error_code else "",
        "lost_text": row.error_text if row.error_code in RESOLVED else "",
        "bodies": _bodies(row),
        "removed": removed_at(BODIES, row.purged_at),
        "resolve_form": form or (ResolveForm(row=row) if resolvable else None),
        "why": why_not(row),
    }


def can_resolve(row: Request) -> bool:
    """Whether a person can end it: an unknown outcome, or a charge that waits for a reason."""
    stuck = row.billing_state == Billing.PENDING and row.pending_reason != ""
    return row.result_state == Result.UNKNOWN or (
        stuck and row.result_state not in (Result.DISPATCHED, Result.ADMITTED)
    )


def steps_of(row: Request) -> list[Step]:
    """admit -> dispatch -> result -> settle, with the time each became durable."""
    tones = {
        Result.COMPLETE: ("check-circle", "ok"),
        Result.FAILED: ("x-circle", "danger"),
        Result.UNKNOWN: ("question", "unknown"),
        Result.CANCELLED: ("ban", "calm"),
    }
    steps = [
        Step(
            _("Admitted"),
            "ring",
            "info",
            row.admitted_at,
            _("The request, its price and its hold are durable."),
        ),
        Step(
            _("Dispatched"),
            "sent",
            "info" if row.dispatched_at else "calm",
            row.dispatched_at,
            _("The decision to send is durable; one provider call follows.")
            if row.dispatched_at
            else _("Not sent."),
        ),
    ]
    if row.error_code in RESOLVED:
        # The outcome was unknown first; the row keeps when it became so and when it was resolved.
        word = status_of(Result.UNKNOWN).word
        lost = to_html(row.error_text) if row.error_text else _("No answer was saved.")
        steps.append(Step(word, *tones[Result.UNKNOWN], row.result_at, lost))
    icon, tone = tones.get(row.result_state, ("ring-dashed", "calm"))
    ended = row.result_state in tones
    ended_at = row.resolved_at if row.error_code in RESOLVED else row.result_at or row.updated_at
    steps.append(
        Step(
            status_of(row.result_state).word if ended else _("Result"),
            icon,
            tone,
            ended_at if ended else None,
            _result_text(row) if ended else "",
        )
    )
    if row.resolved_at and row.error_code not in RESOLVED:
        steps.append(
            Step(_("Resolved by an operator"), "check-circle", "info", row.resolved_at, "")
        )
    if row.billing_state == Billing.NOT_CHARGED:
        at = row.resolved_at or row.result_at or row.updated_at
        steps.append(Step(_("Not charged"), "dash-circle", "calm", at, why(row).means))
    else:
        steps.append(
            Step(
                _("Settled"),
                "coin-check",
                "ok" if row.settled_at else "calm",
                row.settled_at,
                _("One ledger row.") if row.settled_at else why(row).means,
            )
        )
    return steps


def _result_text(row: Request) -> str:
    if row.error_code in RESOLVED:  # its error text says how the outcome was lost before
        return str(RESOLVED[row.error_code])
    if row.error_text:
        return to_html(row.error_text)
    if row.result_sha256:
        return _("The provider's bytes are saved with their hash.")
    return ""


def _charge(explanation: usage.Explanation) -> dict[str, Any] | None:
    if explanation.ledger is None:
        return None
    price = explanation.price
    return {
        "lines": [
            {
                "unit": line.unit.replace("_", " "),
                "count": line.count,
                "rate": usd_text(str(line.usd_per_million)),
                "amount": usd_text(str(line.amount_usd)),
            }
            for line in explanation.lines
        ],
        "reference_nano": explanation.ledger.reference_nano,
        "multiplier": format_multiplier(explanation.ledger.multiplier_millionths),
        "billed_nano": explanation.ledger.amount_nano,
        "corrections": explanation.corrections,
        "total_nano": explanation.total_nano,
        "price_source": _("%(model)s, %(source)s price, version %(version)s")
        % {
            "model": f"{price.get('provider')}/{price.get('model')}",
            "source": price.get("source"),
            "version": price.get("version"),
        },
    }


def _bodies(row: Request) -> list[dict[str, Any]]:
    found = []
    titles = {"request": _("Request body"), "result": _("Result body")}
    for kind, title in titles.items():
        data = usage.read_body_head(request_id=row.id, kind=kind)
        if data is None:
            continue
        total = row.result_bytes if kind == "result" else None
        found.append(
            {
                "title": title,
                "view": body_view(
                    data,
                    content_type=row.content_type if kind == "result" else "application/json",
                    total_bytes=total,
                    bytes_max=conf.audit_view_bytes_max,
                ),
                "download": reverse("request-body", args=[row.id, kind]),
                "opened": kind == "result",
            }
        )
    return found


def why_not(row: Request) -> dict[str, str]:
    """Why an act is not possible, in words; '' when it is."""
    admitted = row.result_state == Result.ADMITTED
    open_ended = row.result_state in (Result.ADMITTED, Result.DISPATCHED)
    return {
        "dispatch": "" if admitted else _("Only an admitted request can be dispatched."),
        "cancel": "" if open_ended else _("It has ended; there is nothing to cancel."),
        "resolve": "" if can_resolve(row) else _("There is nothing to resolve."),
    }
