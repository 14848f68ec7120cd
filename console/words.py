"""Plain words for what the kernel names by code: passes, acts, rates, what an act changed."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console import formats
from kernel.models import AuditRow, PassStatus
from kernel.money import format_multiplier

ACTS: dict[str, str | Promise] = {
    "account.create": gettext_lazy("Created the account"),
    "account.change": gettext_lazy("Changed the account"),
    "service.add": gettext_lazy("Added the service"),
    "service.change": gettext_lazy("Changed the service"),
    "price.add": gettext_lazy("Added a price"),
    "token.issue": gettext_lazy("Issued the token"),
    "token.revoke": gettext_lazy("Revoked the token"),
    "token.scopes": gettext_lazy("Gave the token what this version can do"),
    "signing_key.add": gettext_lazy("Added the signing key"),
    "signing_key.revoke": gettext_lazy("Revoked the signing key"),
    "notification.send": gettext_lazy("Sent the message"),
    "person.add": gettext_lazy("Added the person"),
    "person.change": gettext_lazy("Changed the person"),
    "person.refused": gettext_lazy("Was refused"),
    "person.own_password": gettext_lazy("Changed their own password"),
    "person.factor_add": gettext_lazy("Set up a second factor"),
    "person.factor_remove": gettext_lazy("Removed a second factor"),
    "person.recovery_codes": gettext_lazy("Made new recovery codes"),
    "person.factors_reset": gettext_lazy("Reset the person's second factors"),
    "person.identity_link": gettext_lazy("Linked an identity of single sign-on"),
    "person.identity_unlink": gettext_lazy("Unlinked an identity of single sign-on"),
    "sign_in.done": gettext_lazy("Signed in"),
    "sign_in.throttled": gettext_lazy("Was stopped after too many failed tries"),
    "sign_in.ended": gettext_lazy("Ended sign-ins elsewhere"),
    "person.password_from_environment": gettext_lazy("Took the password of the environment"),
    "request.cancel": gettext_lazy("Cancelled the request"),
    "request.dispatch": gettext_lazy("Dispatched the request"),
    "request.resolve_unknown": gettext_lazy("Resolved the unknown outcome"),
    "request.resolve_pending": gettext_lazy("Gave the metering of a pending charge"),
    "request.write_off": gettext_lazy("Wrote the charge off"),
    "request.correct": gettext_lazy("Corrected the charge"),
    "pass.run": gettext_lazy("Started a pass"),
    "doctor.run": gettext_lazy("Examined the installation"),
    "approval.opened": gettext_lazy("Asked"),
    "approval.decided": gettext_lazy("Decided"),
    "approval.carried_through": gettext_lazy("Carried the decision through"),
    "approval.retry": gettext_lazy("Asked for another attempt at once"),
    "approval.cancelled": gettext_lazy("Cancelled the question"),
    "approval.expired": gettext_lazy("Let the grant expire"),
    "approval.consumed": gettext_lazy("Used the grant"),
    "approval.given_back": gettext_lazy("Gave the grant back: nothing was sent"),
    "invocation.proposed": gettext_lazy("Asked for a direct call"),
    "job.submit": gettext_lazy("Sent the job"),
    "job.cancel": gettext_lazy("Cancelled the job"),
    "job.resume": gettext_lazy("Resumed the job"),
    "call.done": gettext_lazy("The tool answered"),
    "call.resolve": gettext_lazy("Said what happened to an uncertain call"),
    "tool.create": gettext_lazy("Added the tool"),
    "tool.change": gettext_lazy("Changed the tool"),
    "route.create": gettext_lazy("Added the route"),
    "route.change": gettext_lazy("Changed the route"),
    "dead_letter.replay": gettext_lazy("Replayed the dead letter"),
    "dead_letter.failed_again": gettext_lazy("The replay failed for good: a newer dead letter"),
    "dead_letter.archive": gettext_lazy("Archived the dead letter"),
    "dead_letter.restore": gettext_lazy("Restored the dead letter"),
    "operation.plan": gettext_lazy("Planned it"),
    "operation.freeze": gettext_lazy("Froze the set"),
    "operation.apply": gettext_lazy("Started the operation"),
    "operation.pause": gettext_lazy("Paused the operation"),
    "operation.resume": gettext_lazy("Resumed the operation"),
    "operation.cancel": gettext_lazy("Cancelled the operation"),
    "destination.create": gettext_lazy("Added the destination"),
    "destination.change": gettext_lazy("Changed the destination"),
    "destination.test": gettext_lazy("Sent a test"),
    "destination.close": gettext_lazy("Closed the destination for a while"),
    "destination.open": gettext_lazy("Opened the destination again"),
    "alert_rule.create": gettext_lazy("Added the alert rule"),
    "alert_rule.change": gettext_lazy("Changed the alert rule"),
    "pause.set": gettext_lazy("Paused new work"),
    "pause.lift": gettext_lazy("Let new work go on"),
}
PASSES: dict[str, str | Promise] = {
    "settlement": gettext_lazy("Settling charges"),
    "recovery": gettext_lazy("Requests whose sender died"),
    "purge": gettext_lazy("Removing old bodies of requests"),
    "approval_expiry": gettext_lazy("Letting questions expire"),
    "continuations": gettext_lazy("Carrying decisions through"),
    "job_recovery": gettext_lazy("Jobs whose worker died"),
    "notification_recovery": gettext_lazy("Notifications whose sender died"),
    "operations": gettext_lazy("Working off operations"),
    "receipts": gettext_lazy("Removing old receipts of signed calls"),
    "purge_jobs": gettext_lazy("Removing old inputs and results of jobs"),
    "purge_attempts": gettext_lazy("Removing old attempts at notifications"),
    "purge_dead_letters": gettext_lazy("Removing the content of old dead letters"),
    "purge_exports": gettext_lazy("Removing old export files"),
    "audit_copy": gettext_lazy("Copying the audit to its file"),
}
UNITS: dict[str, str | Promise] = {
    "input": gettext_lazy("input"),
    "output": gettext_lazy("output"),
    "input_cached": gettext_lazy("cached input"),
    "input_cache_write": gettext_lazy("cache write"),
}
FACTORS: dict[str, str | Promise] = {
    "totp": gettext_lazy("authenticator app"),
    "webauthn": gettext_lazy("passkey"),
    "recovery_codes": gettext_lazy("recovery codes"),
}
VALUE_CHARS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Change:
    """One value an act set: its name, what it was ('' = not recorded), what it is ('' = gone)."""

    name: str
    before: str
    after: str


def act_text(action: str) -> str:
    """An act in words; one nobody described by its code."""
    return str(ACTS.get(action, action))


def code_text(code: str) -> str:
    """A code of the kernel in words: `no_usage` -> `no usage`."""
    return code.replace("_", " ")


def kind_of_factor(kind: str) -> str:
    """A second factor in words; an unknown one by its code."""
    return str(FACTORS.get(kind, kind))


def pass_name(name: str) -> str:
    """A maintenance pass in words; an unknown one by its code."""
    return str(PASSES.get(name, name))


def pass_text(row: PassStatus) -> str:
    """One line about a pass: what its last run did."""
    if row.error_code:
        return _("The database failed (%(code)s); it waits and tries again.") % {
            "code": row.error_code
        }
    return _("%(scanned)s looked at, %(settled)s done in the last run") % {
        "scanned": f"{row.pass_scanned:,}",
        "settled": f"{row.pass_settled:,}",
    }


def pages_text(count: int) -> str:
    """'1 page', '1,204 pages'."""
    return ngettext("%(n)s page", "%(n)s pages", count) % {"n": f"{count:,}"}


def changes_of(row: AuditRow) -> list[Change]:
    """What an act changed, value by value, in the order of names; equal values are left out."""
    before, after = _stored(row.before_text), _stored(row.after_text)
    return [
        Change(_name(name), _value(name, before), _value(name, after))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name) or (name in before) != (name in after)
    ]


def _stored(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {"?": text}
    return value if isinstance(value, dict) else {"?": value}


def _name(name: str) -> str:
    for ending in ("_nano", "_millionths"):
        name = name.removesuffix(ending)
    return name.replace("_", " ")


def _value(name: str, values: Mapping[str, Any]) -> str:
    if name not in values:
        return ""
    value = values[name]
    if value is None or value == "":
        return _("none")
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, int) and name.endswith("_nano"):
        return formats.money(value).text
    if isinstance(value, int) and name.endswith("_millionths"):
        return f"× {format_multiplier(value)}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:VALUE_CHARS_MAX]


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of a price: the common units first, the special ones (tiers, searches) apart."""

    common: list[tuple[str, str]]
    special: list[tuple[str, str]]


def rates_of(rates: Mapping[str, Any]) -> Rates:
    """Plain rates (kernel.usage.rates.to_plain) in words: unit, and USD per million."""
    common = [(str(word), _rate(rates[unit])) for unit, word in UNITS.items() if unit in rates]
    special = [(unit, _rate(rates[unit])) for unit in sorted(rates) if unit not in UNITS]
    return Rates(common, special)


def _rate(rate: Any) -> str:
    if isinstance(rate, list):
        return "; ".join(_steps(rate))
    return usd_text(rate)


def usd_text(rate: str) -> str:
    """'2.5' -> '$2.50': two decimals or more, never rounded."""
    whole, _dot, fraction = rate.partition(".")
    return f"${whole}.{fraction.ljust(2, '0')}"


def _steps(steps: Iterable[tuple[int, str]]) -> Iterable[str]:
    for border, rate in steps:
        yield (
            _("above %(n)s: %(rate)s") % {"n": f"{border:,}", "rate": usd_text(rate)}
            if border
            else usd_text(rate)
        )
