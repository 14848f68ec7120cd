"""What the page of one job shows: its steps, who waits for what, its input and result."""

from collections.abc import Set
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import Http404
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from console.bodies import body_view
from console.queries.actors import Who, who_of
from console.queries.approvals import decider_of, uncertain_calls
from console.queries.audit import acts_on
from console.queries.jobs import (
    StepParts,
    approvals_by_call,
    finished_seconds,
    job_steps,
    job_version,
)
from console.queries.retention import removed
from console.words import act_text
from kernel import clock
from kernel.conf import conf
from kernel.ids import is_id
from kernel.jobs.steps import requester_of
from kernel.models import Approval, Job, Pause, ToolCall
from kernel.state.pauses import GLOBAL, ROUTE_PREFIX
from kernel.states import ApprovalState, JobState, Result, Waiting

ACTS_SHOWN = 20
ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.REFUSED, JobState.CANCELLED})


@dataclass(frozen=True, slots=True)
class AskedView:
    """One question about a call, and who decided it."""

    row: Approval
    decider: Who


@dataclass(frozen=True, slots=True)
class CallView:
    """One call of a step: its row, whether it is uncertain, and the questions about it."""

    row: ToolCall
    state: str  # second half of a status name `call_*`
    approvals: list[AskedView]


@dataclass(frozen=True, slots=True)
class StepView:
    """One step as the page shows it."""

    parts: StepParts
    calls: list[CallView]


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing the job waits for: a title, a line of text, and where a person can end it."""

    icon: str
    tone: str
    title: str | Promise
    text: str  # untrusted
    href: str = ""


def job_or_404(job_id: str) -> Job:
    """The job of this id, or Http404."""
    row = Job.objects.filter(id=job_id).first() if is_id(job_id, chars_max=64) else None
    if row is None:
        raise Http404
    return row


def has_moved(job_id: str, *, seen: str) -> bool:
    """Whether a job is another than the page that was `seen`; reads no body. Http404."""
    light = Job.objects.only("id", "account_id", "updated_at")
    row = light.filter(id=job_id).first() if is_id(job_id, chars_max=64) else None
    if row is None:
        raise Http404
    return job_version(row) != seen


def job_context(row: Job) -> dict[str, Any]:
    """Everything templates/console/jobs/detail.html names."""
    now = clock.now()
    asked = approvals_by_call(row.id)
    found = job_steps(row)
    lost = uncertain_calls([call for parts in found for call in parts.calls], now=now)
    questions = [one for each in asked.values() for one in each]
    sender = requester_of(job_id=row.id)
    known = who_of([sender, *(decider_of(one) for one in questions)])
    steps = [
        StepView(
            parts,
            [
                CallView(
                    call,
                    state_shown(call, uncertain=lost),
                    [AskedView(one, known[decider_of(one)]) for one in asked.get(call.id, [])],
                )
                for call in parts.calls
            ],
        )
        for parts in found
    ]
    pauses = list(Pause.objects.filter(scope__in=[GLOBAL, f"{ROUTE_PREFIX}{row.route_id}"]))
    return {
        "row": row,
        "sender": known[sender],
        "version": job_version(row),
        "is_live": row.state not in ENDED,
        "steps": steps,
        "waits": waits_of(row, steps, pauses),
        "took_seconds": finished_seconds(row),
        "heard_at": heard_at(row),
        "bodies": _bodies(row),
        "removed": removed("jobs", row.id) if row.state in ENDED else None,
        "why": why_not(row),
        "acts": [
            {"row": act, "text": act_text(act.action)}
            for act in acts_on(f"job:{row.id}", count=ACTS_SHOWN)
        ],
    }


def state_shown(call: ToolCall, *, uncertain: Set[str]) -> str:
    """The state of a call for people: `uncertain` is a state of its own."""
    return "uncertain" if call.id in uncertain else call.state


def heard_at(row: Job) -> Any:
    """When the worker that holds it was last heard of, None when nobody holds it."""
    if row.state != JobState.RUNNING or row.lease_expires_at is None:
        return None
    return row.lease_expires_at - timedelta(seconds=conf.job_lease_seconds)


def why_not(row: Job) -> dict[str, str]:
    """Why an act is not possible, in words; '' when it is."""
    ended = row.state in ENDED
    return {
        "cancel": _("It has ended; there is nothing to cancel.") if ended else "",
        "resume": "" if row.state == JobState.PARKED else _("Only a parked job can be resumed."),
    }


def waits_of(row: Job, steps: list[StepView], pauses: list[Pause]) -> list[Wait]:
    """Who waits for what, most concrete first; empty when nobody has to do anything."""
    calls = [call for step in steps for call in step.calls]
    found = [_uncertain(call) for call in calls if call.state == "uncertain"]
    if row.state == JobState.WAITING and row.waiting_reason == Waiting.APPROVAL:
        asked = [one.row for call in calls for one in call.approvals]
        found += [_question(one) for one in asked if one.state == ApprovalState.OPEN]
        if not any(one.state == ApprovalState.OPEN for one in asked):
            text = _("The decision is recorded; it reaches the job by itself.")
            found.append(Wait("clock", "info", _("Recorded, continuing"), text))
    if row.state == JobState.WAITING and row.waiting_reason == Waiting.MODEL_UNKNOWN:
        requests = [step.parts.request for step in steps if step.parts.request]
        found += [
            Wait(
                "question",
                "unknown",
                _("A model request with an unknown outcome"),
                _("Look it up at the provider and resolve it; the job then goes on."),
                reverse("request", args=[one.id]),
            )
            for one in requests
            if one.result_state == Result.UNKNOWN
        ]
    if row.state == JobState.PARKED:
        text = _("It lost its workers %(n)s times. Resume it once the cause is gone, or cancel it.")
        found.append(Wait("alert", "danger", _("An operator"), text % {"n": row.attempts}))
    if row.state in (JobState.QUEUED, JobState.RUNNING):
        found += [
            Wait("pause", "warn", _("Paused: %(s)s") % {"s": one.scope}, one.reason)
            for one in pauses
        ]
    return found


def _question(row: Approval) -> Wait:
    address = reverse("approval", args=[row.id])
    return Wait("approvals", "accent", _("A decision"), row.effect or row.tool, address)


def _uncertain(call: CallView) -> Wait:
    return Wait(
        "question",
        "unknown",
        _("Word about a tool call that may have been carried out"),
        f"{call.row.tool} ({call.row.id})",
        reverse("call", args=[call.row.id]),
    )


def _bodies(row: Job) -> list[dict[str, Any]]:
    texts = ((_("Input"), row.input_text), (_("Result"), row.result_text))
    return [
        {
            "title": title,
            "view": body_view(
                text.encode(), content_type="application/json", bytes_max=conf.audit_view_bytes_max
            ),
        }
        for title, text in texts
        if text
    ]
