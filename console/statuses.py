"""How each state looks: icon, word, tone. Loud only where a person is needed."""

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kernel.visible import visible


@dataclass(frozen=True, slots=True)
class Status:
    """The look of one state. `tone` names a colour role; `loud` gives it a filled background."""

    word: str | Promise
    icon: str
    tone: str  # ok | info | warn | danger | unknown | calm
    loud: bool = False
    hint: str | Promise = ""


STATUSES: dict[str, Status] = {
    # result of a model request
    "admitted": Status(_("Admitted"), "ring", "calm", hint=_("Durable, not sent.")),
    "dispatched": Status(_("Dispatched"), "sent", "info", hint=_("Sent; waiting for the answer.")),
    "complete": Status(_("Complete"), "check-circle", "ok", hint=_("The answer is saved.")),
    "failed": Status(_("Failed"), "x-circle", "danger", hint=_("No usable answer; it is final.")),
    "unknown": Status(
        _("Unknown"),
        "question",
        "unknown",
        loud=True,
        hint=_("Sent, outcome not known."),
    ),
    "cancelled": Status(_("Cancelled"), "ban", "calm"),
    # billing of a model request
    "open": Status(_("Open"), "ring-dashed", "calm", hint=_("Nothing to charge yet.")),
    "pending": Status(_("Pending"), "clock", "warn", loud=True, hint=_("Owed or not yet known.")),
    "settled": Status(
        _("Settled"),
        "coin-check",
        "ok",
        hint=_("One charge in the ledger; corrections are new rows."),
    ),
    "not_charged": Status(_("Not charged"), "dash-circle", "calm", hint=_("Nothing is owed.")),
    # things that are on, off or ailing
    "active": Status(_("Active"), "check-circle", "ok"),
    "revoked": Status(_("Revoked"), "ban", "calm"),
    "expired": Status(_("Expired"), "clock", "calm"),
    "disabled": Status(_("Disabled"), "ban", "calm"),
    "healthy": Status(_("Healthy"), "check-circle", "ok"),
    "late": Status(_("Late"), "clock", "warn", loud=True),
    "ended": Status(_("Ended"), "check", "calm"),
    "down": Status(_("Down"), "alert", "danger", loud=True),
    "broken": Status(_("Broken"), "alert", "danger", loud=True),
    "not_ready": Status(_("Not ready"), "alert", "danger", loud=True),
    "warning": Status(_("Warning"), "alert", "warn", loud=True),
    "failure": Status(_("Failure"), "alert", "danger", loud=True),
    "closing": Status(_("Closing"), "clock", "warn", loud=True),
    "running": Status(_("Running"), "sent", "info"),
    "idle": Status(_("Idle"), "ring", "calm"),
    "backing_off": Status(_("Backing off"), "clock", "warn", loud=True),
    "paused": Status(_("Paused"), "pause", "warn", loud=True),
    "over_cap": Status(_("Over cap"), "alert", "danger", loud=True),
}

STATUSES |= {
    # an approval, its risk, what became of its decision
    "risk_low": Status(_("Low risk"), "ring", "calm"),
    "risk_medium": Status(_("Medium risk"), "info", "warn"),
    "risk_high": Status(_("High risk"), "alert", "danger", loud=True),
    "approval_open": Status(_("Open"), "question", "accent", loud=True, hint=_("Not decided.")),
    "approval_approved": Status(_("Approved"), "check-circle", "ok"),
    "approval_consumed": Status(_("Approved"), "check-circle", "ok", hint=_("The grant is used.")),
    "approval_denied": Status(_("Denied"), "x-circle", "danger"),
    "approval_expired": Status(_("Expired"), "clock", "calm", hint=_("Nobody decided in time.")),
    "approval_cancelled": Status(_("Cancelled"), "ban", "calm"),
    "fate_": Status(_("Not decided"), "ring-dashed", "calm"),
    "fate_owed": Status(_("Recorded, continuing"), "clock", "info"),
    "fate_owed_failing": Status(
        _("Continuation failed"),
        "alert",
        "warn",
        loud=True,
        hint=_("The decision is recorded; it is tried again by itself."),
    ),
    "fate_not_started": Status(_("Not started yet"), "ring", "calm"),
    "fate_runs": Status(_("Running"), "sent", "info"),
    "fate_done": Status(_("Done"), "check-circle", "ok", hint=_("The tool answered.")),
    "fate_failed": Status(_("Not executed"), "x-circle", "danger"),
    "fate_uncertain": Status(_("Uncertain"), "question", "unknown", loud=True),
    "fate_never": Status(_("Never sent"), "dash-circle", "calm"),
    "bulk_not_done": Status(_("Not done"), "alert", "warn", loud=True),
    # a job, and its tool calls
    "job_queued": Status(_("Queued"), "ring", "calm", hint=_("Waits for a worker.")),
    "job_running": Status(_("Running"), "sent", "info", hint=_("A worker holds it.")),
    "job_waiting": Status(_("Waiting"), "clock", "warn", loud=True, hint=_("Waits for a person.")),
    "job_done": Status(_("Done"), "check-circle", "ok"),
    "job_failed": Status(_("Failed"), "x-circle", "danger"),
    "job_refused": Status(_("Refused"), "ban", "danger", hint=_("A decision ended it.")),
    "job_cancelled": Status(_("Cancelled"), "ban", "calm"),
    "job_parked": Status(
        _("Parked"), "alert", "danger", loud=True, hint=_("It lost its workers too often.")
    ),
    "call_proposed": Status(_("Not sent"), "ring", "calm"),
    "call_dispatching": Status(_("Sent"), "sent", "info", hint=_("Its worker waits.")),
    "call_uncertain": Status(
        _("Uncertain"), "question", "unknown", loud=True, hint=_("Sent, no answer saved.")
    ),
    "call_done": Status(_("Done"), "check-circle", "ok"),
    "call_failed": Status(_("Not executed"), "x-circle", "danger"),
    # what a tool's policy says when no rule fits
    "policy_auto": Status(_("Runs by itself"), "play", "calm"),
    "policy_approval": Status(_("Asks a person"), "approvals", "info"),
    "policy_forbidden": Status(_("Forbidden"), "ban", "danger"),
    "policy_": Status(_("Not readable"), "alert", "warn"),
}

STATUSES |= {
    # a notification, and what came of one attempt
    "notification_queued": Status(_("Queued"), "clock", "calm", hint=_("Waits for its due time.")),
    "notification_sending": Status(_("Being sent"), "sent", "info"),
    "notification_with_executor": Status(_("With an executor"), "jobs", "info"),
    "notification_delivered": Status(_("Delivered"), "check-circle", "ok"),
    "notification_dead": Status(_("Dead"), "dead-letters", "danger", hint=_("Final failure.")),
    "outcome_delivered": Status(_("Delivered"), "check-circle", "ok"),
    "outcome_refused": Status(_("Refused"), "x-circle", "danger", hint=_("It answered no.")),
    "outcome_not_sent": Status(_("Not sent"), "dash-circle", "calm", hint=_("No byte left.")),
    "outcome_unknown": Status(_("Unknown"), "question", "unknown", hint=_("May have arrived.")),
    "overdue": Status(_("Overdue"), "alert", "warn", loud=True),
    # a dead letter
    "letter_open": Status(_("Open"), "alert", "warn", loud=True, hint=_("Waits for a person.")),
    "letter_resolved": Status(_("Replayed"), "check-circle", "ok", hint=_("It stays so.")),
    "letter_archived": Status(_("Archived"), "inbox", "calm"),
    # a long act and its items
    "operation_planning": Status(_("Planning"), "sent", "info", hint=_("Its set is being frozen.")),
    "operation_planned": Status(_("Planned"), "ring", "accent", loud=True, hint=_("Set frozen.")),
    "operation_running": Status(_("Running"), "sent", "info"),
    "operation_paused": Status(_("Paused"), "pause", "warn", loud=True),
    "operation_done": Status(_("Done"), "check-circle", "ok"),
    "operation_cancelled": Status(_("Cancelled"), "ban", "calm"),
    "item_planned": Status(_("Not yet"), "ring", "calm"),
    "item_done": Status(_("Done"), "check-circle", "ok"),
    "item_skipped": Status(_("Skipped"), "dash-circle", "warn"),
    "item_failed": Status(_("Failed"), "x-circle", "danger"),
    # a destination's circuit
    "circuit_open": Status(_("Accepting"), "check-circle", "ok"),
    "circuit_failing": Status(_("Failing"), "alert", "warn", hint=_("Failures in a row.")),
    "circuit_closed": Status(_("Closed"), "alert", "danger", loud=True, hint=_("Nothing is sent.")),
    "circuit_probe": Status(_("Probe due"), "clock", "warn", loud=True),
    "circuit_off": Status(_("Switched off"), "ban", "calm"),
}


def word_of(name: str) -> str:
    """The word for a state inside a sentence: `not_charged` -> `not charged`."""
    return str(status_of(name).word).lower()


def status_of(name: str) -> Status:
    """The look of a state; a state nobody described is shown by its name, calmly."""
    look = STATUSES.get(name)
    return look or Status(visible(name.replace("_", " ").capitalize()), "ring", "calm")
