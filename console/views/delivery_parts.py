"""Parts that the screens of delivery share: attempts as a timeline, stored bytes, downloads."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.acting import version_of
from console.bodies import BodyView, body_view
from console.formats import absolute_text, ago_text
from console.statuses import status_of
from console.timeline import Step
from console.untrusted import to_html
from kernel import clock
from kernel.conf import conf
from kernel.models import DeliveryAttempt, Notification
from kernel.states import Delivery, NotificationState

EVIDENCE_CHARS_SHOWN = 2_000
LIVE = (NotificationState.QUEUED, NotificationState.SENDING, NotificationState.WITH_EXECUTOR)


def notification_version(row: Notification) -> str:
    """Another one after each of its moves: what a poll has seen."""
    return f"{version_of(row.updated_at)}-{row.attempts}"


def content_view(content: bytes | memoryview, content_type: str) -> BodyView:
    """The stored bytes within the byte budget of the console."""
    data = bytes(content)
    return body_view(
        data, content_type=content_type or "text/plain", bytes_max=conf.audit_view_bytes_max
    )


def download(content: bytes | memoryview, *, name: str) -> HttpResponse:
    """The exact bytes, as a download that no browser runs."""
    response = HttpResponse(bytes(content), content_type="application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def attempt_steps(attempts: Sequence[DeliveryAttempt]) -> list[Step]:
    """One step per attempt: its outcome, the receiver's status, the evidence, what was next."""
    return [_attempt_step(attempt) for attempt in attempts]


def _attempt_step(attempt: DeliveryAttempt) -> Step:
    look = status_of(f"outcome_{attempt.outcome}")
    facts: list[tuple[str, Any]] = []
    if attempt.http_status:
        facts.append((_("HTTP"), attempt.http_status))
    facts.append((_("took"), f"{(attempt.ended_at - attempt.started_at).total_seconds():.2f} s"))
    if attempt.next_due_at is not None:
        facts.append((_("next due"), absolute_text(attempt.next_due_at, now=clock.now())))
    if attempt.outcome == Delivery.UNKNOWN:
        facts.append((_("note"), _("it may have arrived; the next attempt may be a duplicate")))
    return Step(
        _("Attempt %(n)s: %(outcome)s") % {"n": attempt.number, "outcome": str(look.word).lower()},
        look.icon,
        look.tone,
        attempt.ended_at,
        to_html(attempt.evidence_text[:EVIDENCE_CHARS_SHOWN]) if attempt.evidence_text else "",
        facts,
    )


def notification_steps(
    row: Notification, attempts: Sequence[DeliveryAttempt], *, now: datetime
) -> list[Step]:
    """written -> attempt, attempt, ... -> delivered, dead, or what comes next."""
    steps = [Step(_("Written"), "bell", "info", row.created_at)]
    if row.state == NotificationState.WITH_EXECUTOR or row.child_job_id:
        steps[0] = Step(_("Written, with its executor's job"), "bell", "info", row.created_at)
    steps += attempt_steps(attempts)
    end = _end_step(row, now=now)
    return [*steps, end] if end else steps


def _end_step(row: Notification, *, now: datetime) -> Step | None:
    if row.state == NotificationState.QUEUED:
        title = _("First attempt") if not row.attempts else _("Next attempt")
        when = {"at": absolute_text(row.due_at, now=now), "ago": ago_text(row.due_at, now=now)}
        return Step(title, "clock", text=_("due %(at)s (%(ago)s)") % when)
    if row.state == NotificationState.SENDING:
        return Step(_("Being sent"), "sent", text=_("its sender waits for the answer"))
    if row.state == NotificationState.WITH_EXECUTOR:
        return Step(_("An executor sends it"), "jobs", text=_("its child job says how it ended"))
    if row.state == NotificationState.DEAD:
        text = _("A dead letter keeps it whole.")
        return Step(_("Final failure"), "dead-letters", "danger", row.finished_at, text)
    return None


def duplicates_text(unknown_attempts: int) -> str:
    """What attempts of unknown outcome mean for the receiver, in words; '' when there was none."""
    if not unknown_attempts:
        return ""
    return ngettext(
        "%(n)s attempt ended without an answer: the receiver may have it already. The message"
        " keeps its id, so a receiver that remembers ids takes it once.",
        "%(n)s attempts ended without an answer: the receiver may have it already, up to"
        " %(n)s times. The message keeps its id, so a receiver that remembers ids takes it once.",
        unknown_attempts,
    ) % {"n": unknown_attempts}
