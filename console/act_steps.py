"""The acts on one object as the steps of a timeline."""

from collections.abc import Sequence
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from console.queries.actors import who_of
from console.queries.audit import REFUSED
from console.timeline import Step
from console.untrusted import to_html


def act_steps(acts: Sequence[dict[str, Any]]) -> list[Step]:
    """Acts [{row (AuditRow), text}], newest first, as steps from the oldest on.

    One query where a token acted.
    """
    known = who_of({_actor(act["row"]) for act in acts})
    steps = []
    for act in reversed(acts):
        row = act["row"]
        is_refused, address = row.action in REFUSED, reverse("act", args=[row.id])
        steps.append(
            Step(
                title=format_html('<a href="{}">{}</a>', address, act["text"]),
                icon="ban" if is_refused else "check",
                tone="warn" if is_refused else "calm",
                at=row.at,
                text=to_html(row.reason) if row.reason else "",
                facts=[(_("by"), known[_actor(row)].html)],
            )
        )
    return steps


def _actor(row: Any) -> str:
    return f"{row.actor_kind}:{row.actor_id}"
