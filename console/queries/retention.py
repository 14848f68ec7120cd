"""Retention as the console shows it: what is kept how long, and what the last purges removed."""

from dataclasses import dataclass
from datetime import datetime

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kernel import retention

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
