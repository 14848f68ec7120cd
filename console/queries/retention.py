"""Retention as the console shows it: what is kept how long, and what was removed of one object."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kernel import retention
from kernel.models import DeadLetterPurge, JobPurge, NotificationPurge

WORDS: dict[str, tuple[str | Promise, str | Promise]] = {
    "result_bodies": (
        _("Bodies of requests"),
        _("Metering, hash and ledger row stay; a repeat answers that the body is gone."),
    ),
    "jobs": (
        _("Input and result of ended jobs"),
        _("The job, its markers and its input's hash stay; a repeat finds it."),
    ),
    "attempts": (
        _("Attempts at notifications"),
        _("Their number stays; those of an unresolved dead letter stay whole."),
    ),
    "dead_letters": (
        _("Content of resolved dead letters"),
        _("The dead letter and its replay identity stay; open and archived ones stay whole."),
    ),
    "exports": (_("Files of exports"), _("The plan, the result and the hash stay.")),
}
BODIES = retention.BODIES
POLICIES = {policy.kind: policy for policy in retention.POLICIES}
# Where an object says when its content was removed, and the digest that stays of it ('' = none).
_PURGED: dict[str, tuple[Any, str, str]] = {
    "jobs": (JobPurge, "purged_at", "input_sha256"),
    "attempts": (NotificationPurge, "attempts_purged_at", ""),
    "dead_letters": (DeadLetterPurge, "purged_at", "content_sha256"),
}


@dataclass(frozen=True, slots=True)
class Kept:
    """One kind of content: how long it is kept, what its last purge removed (None = nothing)."""

    title: str | Promise
    stays: str | Promise
    days: int
    last_count: int
    total_count: int
    last_at: datetime | None


def kept() -> list[Kept]:
    """The policy, in its order. One query."""
    found = retention.statuses()
    rows = []
    for policy in retention.POLICIES:
        title, stays = WORDS[policy.kind]
        row = found.get(policy.kind)
        rows.append(
            Kept(
                title=title,
                stays=stays,
                days=policy.days,
                last_count=row.last_count if row else 0,
                total_count=row.total_count if row else 0,
                last_at=row.last_at if row else None,
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class Removed:
    """What retention took from one object: when, by which policy, and what stays."""

    at: datetime
    title: str | Promise
    stays: str | Promise
    days: int
    setting: str  # the name of the policy in the environment
    sha256: str = ""


def removed_at(kind: str, at: datetime | None, *, sha256: str = "") -> Removed | None:
    """The removal of this kind at that time; None for None. No query."""
    if at is None:
        return None
    policy = POLICIES[kind]
    title, stays = WORDS[kind]
    return Removed(at, title, stays, policy.days, f"BAILING_{policy.setting.upper()}", sha256)


def removed(kind: str, row_id: str) -> Removed | None:
    """What was removed of a job, a notification's attempts or a dead letter. One query (A17)."""
    if not retention.is_available():
        return None
    model, column, digest = _PURGED[kind]
    row = model.objects.filter(id=row_id).values(*filter(None, (column, digest))).first()
    return removed_at(kind, row[column], sha256=row.get(digest) or "") if row else None
