"""What the page of one dead letter shows: attempts, bytes, lineage, what can be done."""

from typing import Any

from django.http import Http404
from django.utils.translation import gettext as _

from console.acting import version_of
from console.queries.audit import acts_on
from console.queries.destinations import destination_row
from console.queries.retention import removed
from console.views.delivery_parts import (
    LIVE,
    attempt_steps,
    content_view,
    duplicates_text,
    notification_version,
)
from console.words import act_text
from kernel import clock
from kernel.delivery.lookup import Kept, attempts_of, get_dead_letter, lineage_of, replay_of
from kernel.errors import NotFound
from kernel.ids import is_id
from kernel.models import DeadLetter, DeadLetterGroup, Destination, Job
from kernel.states import DeadLetterState

ACTS_SHOWN = 20


def letter_or_404(dead_letter_id: str) -> Kept:
    """The dead letter of this id with its replay columns, or Http404."""
    if not is_id(dead_letter_id, chars_max=64):
        raise Http404
    try:
        kept: Kept = get_dead_letter(dead_letter_id=dead_letter_id)
    except NotFound:
        raise Http404 from None
    return kept


def has_moved(dead_letter_id: str, *, seen: str) -> bool:
    """Whether the notification of its replay is another than the page has `seen`. Http404."""
    if not is_id(dead_letter_id, chars_max=64):
        raise Http404
    try:
        replay = replay_of(dead_letter_id=dead_letter_id)
    except NotFound:
        raise Http404 from None
    return replay is None or notification_version(replay) != seen


def letter_context(kept: Kept) -> dict[str, Any]:
    """Everything templates/console/dead_letters/detail.html names."""
    row = kept.letter
    destination = Destination.objects.filter(id=row.destination_id).first()
    lineage = lineage_of(dead_letter_id=row.id)
    here = [one.id for one in lineage].index(row.id)
    replay = replay_of(dead_letter_id=row.id)
    return {
        "row": row,
        "version": version_of(row.updated_at),
        "kept": kept,
        "at": destination_row(destination, now=clock.now()) if destination else None,
        "group": DeadLetterGroup.objects.filter(fingerprint=row.error_fingerprint).first(),
        "steps": attempt_steps(attempts_of(notification_id=row.notification_id)),
        "duplicates": duplicates_text(row.unknown_attempts),
        "attempts_removed": removed("attempts", row.notification_id),
        "removed": removed("dead_letters", row.id),
        "body": content_view(row.content, row.content_type),
        "before": lineage[:here],
        "replay": replay,
        "is_live": replay is not None and replay.state in LIVE,
        "seen": notification_version(replay) if replay else "",
        "after": lineage[here + 1 :],
        "is_job": bool(row.job_id) and Job.objects.filter(id=row.job_id).exists(),
        "why": why_not(row),
        "acts": [
            {"row": act, "text": act_text(act.action)}
            for act in acts_on(f"dead_letter:{row.id}", count=ACTS_SHOWN)
        ],
    }


def why_not(row: DeadLetter) -> dict[str, str]:
    """Why an act is not possible, in words; '' when it is."""
    archived = row.state == DeadLetterState.ARCHIVED
    resolved = _("It was replayed; a replay that fails again is a new dead letter.")
    replay = {
        DeadLetterState.RESOLVED: resolved,
        DeadLetterState.ARCHIVED: _("It is archived. Restore it first."),
    }.get(row.state, "")
    archive = "" if row.state == DeadLetterState.OPEN else _("Only an open one can be archived.")
    return {
        "replay": replay,
        "archive": archive,
        "restore": "" if archived else _("Only an archived one can be restored."),
    }
