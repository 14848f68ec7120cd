"""How each state looks: icon, word, tone. Loud only where a person is needed."""

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from console.untrusted import visible


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
    "down": Status(_("Down"), "alert", "danger", loud=True),
    "broken": Status(_("Broken"), "alert", "danger", loud=True),
    "not_ready": Status(_("Not ready"), "alert", "danger", loud=True),
    "closing": Status(_("Closing"), "clock", "warn", loud=True),
    "running": Status(_("Running"), "sent", "info"),
    "idle": Status(_("Idle"), "ring", "calm"),
    "backing_off": Status(_("Backing off"), "clock", "warn", loud=True),
    "over_cap": Status(_("Over cap"), "alert", "danger", loud=True),
}


def status_of(name: str) -> Status:
    """The look of a state; a state nobody described is shown by its name, calmly."""
    look = STATUSES.get(name)
    return look or Status(visible(name.replace("_", " ").capitalize()), "ring", "calm")
