"""What the page of one approval shows: the question, the exact call, the decision, its outcome."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db.models.functions import Substr
from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.acting import version_of
from console.bodies import BodyView, body_view
from console.formats import ago_text
from console.forms import ConsoleForm, NoteField
from console.queries.actors import Who, who_of
from console.queries.approvals import (
    HEAVY,
    approval_rows,
    decider_of,
    fate,
    state_now,
    uncertain_calls,
)
from console.queries.audit import acts_on
from console.queries.tool_versions import Address, addresses_of
from console.timeline import Step
from console.untrusted import to_html
from console.views.call_parts import bound_to, prompt_of
from console.words import act_text
from kernel import clock
from kernel.approvals.arguments import Change, difference, masked
from kernel.approvals.decisions import in_the_same_hands
from kernel.approvals.lookup import (
    approvals_of_job,
    continuation_of,
    get_approval,
    last_approved_like,
)
from kernel.errors import KernelError, NotFound
from kernel.ids import is_id
from kernel.jobs.proposals import judge
from kernel.models import Approval, Continuation, Job, Tool, ToolCall
from kernel.states import ApprovalState, CallState, JobState, Owed

ACTS_SHOWN = 10
SIBLINGS_SHOWN = 20
PROMPT_CHARS_MAX = 2_000
SOON_SECONDS = 600
LIVE_FATES = frozenset({"owed", "owed_failing", "not_started", "runs"})
ENDED_JOBS = frozenset(
    {JobState.DONE, JobState.FAILED, JobState.REFUSED, JobState.CANCELLED, JobState.PARKED}
)
GONE_JOBS = ENDED_JOBS - {JobState.PARKED}
MOVING_JOBS = frozenset({JobState.QUEUED, JobState.RUNNING})
HIGH = "high"


class DecideForm(ConsoleForm):
    """The reason of a decision. Denying a high risk needs one (C11)."""

    reason = NoteField(label=gettext_lazy("Reason"))

    def __init__(self, *args: Any, row: Approval, decision: str, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.fields["reason"].required = decision == "denied" and row.risk == HIGH


def row_or_404(approval_id: str) -> Approval:
    """The approval of this id, or Http404."""
    if not is_id(approval_id):
        raise Http404
    try:
        row: Approval = get_approval(approval_id=approval_id)
    except NotFound:
        raise Http404 from None
    return row


def approval_context(request: HttpRequest, row: Approval) -> dict[str, Any]:
    """Everything templates/console/approvals/detail.html names."""
    now = clock.now()
    state = state_now(row, now=now)
    call = _call_of(row)
    continuation = continuation_of(approval_id=row.id)
    job = _job_of(row)
    lost = uncertain_calls([call] if call else [], now=now)
    what = fate(row, call, continuation, uncertain=lost)
    tool = Tool.objects.filter(id=row.tool).first()
    last = last_approved_like(approval=row)
    replaced = Approval.objects.filter(id=row.supersedes_id).first() if row.supersedes_id else None
    before = replaced or last
    versions = [each.tool_version for each in (row, before) if each is not None]
    addresses = addresses_of(tool, versions)
    replacement = _replacement_of(row, call)
    known = who_of([row.requested_by, *(decider_of(one) for one in (row, last) if one)])
    return {
        "row": row,
        "asker": known[row.requested_by],
        "decider": known[decider_of(row)] if row.decided_by_id else None,
        "last_decider": known[decider_of(last)] if last else None,
        "state": state,
        "is_open": state == ApprovalState.OPEN,
        "is_soon": row.expires_at - now < timedelta(seconds=SOON_SECONDS),
        "fate": what,
        "is_live": is_live(state, what, job),
        "version": _version(row, state, call, continuation, job),
        "why": why_not(request, row, state),
        "tool": tool,
        "bound": bound_to(tool, row.tool_version, addresses=addresses),
        "anew_why": why_not_anew(row, tool),
        "is_not_sent": is_not_sent(row, tool, call, job),
        "replacement": replacement,
        "replacement_state": state_now(replacement, now=now) if replacement else "",
        "arguments": arguments_view(row.arguments_text),
        "replaced": replaced,
        "last": last,
        "changes": _changes(before, row),
        "tool_changes": _tool_changes(before, row, addresses),
        "call": call,
        "continuation": continuation,
        "steps": steps_of(row, state, what, call, continuation, known=known),
        "job": job,
        "prompt": prompt_of(job.input_head) if job else "",
        "siblings": _siblings(row),
        "acts": [
            {"row": act, "text": act_text(act.action)}
            for act in acts_on(f"approval:{row.id}", count=ACTS_SHOWN)
        ],
    }


def page_version(row: Approval) -> str:
    """The same version as in the context, for a poll: three rows by their keys, no page."""
    job = Job.objects.only("id", "updated_at").filter(id=row.job_id).first() if row.job_id else None
    state = state_now(row, now=clock.now())
    return _version(row, state, _call_of(row), continuation_of(approval_id=row.id), job)


def why_not(request: HttpRequest, row: Approval, state: str) -> str:
    """Why this person cannot decide it now, in words; '' when they can (their role aside)."""
    if state != ApprovalState.OPEN:
        return _("It is decided or closed; there is nothing to decide any more.")
    if in_the_same_hands(row.requested_by, f"user:{request.user.get_username()}"):
        return _("You asked for this, or a token that you issued did; somebody else has to decide.")
    return ""


def who_was_first(row: Approval) -> str:
    """Who decided it, what and when, in one sentence; for those who came second."""
    ago = ago_text(row.decided_at, now=clock.now()) if row.decided_at else ""
    first = who_of([decider_of(row)])[decider_of(row)]
    what = {"who": first.text, "what": row.decision, "ago": ago}
    return _("Somebody was first: %(who)s, %(what)s, %(ago)s.") % what


def arguments_view(text: str) -> BodyView | None:
    """The whole canonical text, secrets masked, hidden characters visible; None if unreadable."""
    try:
        data = masked(text).encode()
    except (KernelError, ValueError):
        return None
    return body_view(data, content_type="application/json", bytes_max=len(data))


def has_drifted(row: Approval, tool: Tool | None) -> bool:
    """Whether the tool changed since this was asked: nothing is sent for it any more (C1)."""
    return tool is not None and tool.version != row.tool_version


def why_not_anew(row: Approval, tool: Tool | None) -> str:
    """Why a changed tool is not even asked about again, untrusted; '' when it is."""
    if not has_drifted(row, tool):
        return ""
    judged = judge(tool=tool, given_text=row.arguments_text)
    return judged.message or judged.error_code


def is_not_sent(row: Approval, tool: Tool | None, call: ToolCall | None, job: Any) -> bool:
    """Whether it is approved, but its call cannot be sent since the tool changed."""
    waits = call is not None and call.state == CallState.PROPOSED
    is_gone = job is not None and job.state in GONE_JOBS
    return row.state == ApprovalState.APPROVED and waits and not is_gone and has_drifted(row, tool)


def is_live(state: str, what: str, job: Job | None) -> bool:
    """Whether the page should look again by itself: not once everything waits for a person."""
    if state == ApprovalState.OPEN or (job is not None and job.state in MOVING_JOBS):
        return True
    if what == "":  # its time is over, and no pass has closed it yet
        return job is not None and job.state not in ENDED_JOBS
    waits_for_job = what == "not_started" and (job is None or job.state in ENDED_JOBS)
    return what in LIVE_FATES and not waits_for_job


def _call_of(row: Approval) -> ToolCall | None:
    if not row.tool_call_id:
        return None
    return (
        ToolCall.objects.defer("arguments_text", "response_text")
        .filter(id=row.tool_call_id)
        .first()
    )


def _replacement_of(row: Approval, call: ToolCall | None) -> Approval | None:
    """The latest question about the same call, where this one was cancelled for it."""
    if row.state != ApprovalState.CANCELLED or call is None or call.approval_id in ("", row.id):
        return None
    newest: Approval | None = (
        Approval.objects.defer(*HEAVY).filter(id=call.approval_id, tool_call_id=call.id).first()
    )
    return newest


def _job_of(row: Approval) -> Any:
    if not row.job_id:
        return None
    rows = Job.objects.defer("input_text", "result_text", "error_text").filter(id=row.job_id)
    return rows.annotate(input_head=Substr("input_text", 1, PROMPT_CHARS_MAX)).first()


def _version(row: Approval, state: str, *others: Any) -> str:
    moments = [version_of(each.updated_at) for each in (row, *others) if each is not None]
    return f"{max(moments)}-{state}"


def _changes(before: Approval | None, row: Approval) -> list[Change]:
    """Where the arguments differ; two different secrets do so by their digests."""
    if before is None:
        return []
    try:
        found: list[Change] = difference(before.arguments_text, row.arguments_text)
    except (KernelError, ValueError):
        return []
    return found


def _tool_changes(
    before: Approval | None, row: Approval, addresses: dict[int, Address]
) -> list[Change]:
    """The tool's version and, where both are known, its address, as far as they differ."""
    if before is None or before.tool_version == row.tool_version:
        return []
    found = [Change(_("Version of the tool"), str(before.tool_version), str(row.tool_version))]
    old, new = addresses.get(before.tool_version), addresses.get(row.tool_version)
    if old is not None and new is not None and old != new:
        found.append(Change(_("Address"), str(old), str(new)))
    return found


def _siblings(row: Approval) -> list[Any]:
    if not row.job_id:
        return []
    rows = [each for each in approvals_of_job(job_id=row.job_id) if each.id != row.id]
    return approval_rows(rows[:SIBLINGS_SHOWN])


def steps_of(
    row: Approval,
    state: str,
    what: str,
    call: ToolCall | None,
    continuation: Continuation | None,
    *,
    known: Mapping[str, Who],
) -> list[Step]:
    """asked -> decided -> carried through -> called -> answered, as far as each was reached."""
    steps = [
        Step(_("Asked"), "question", "info", row.created_at, known[row.requested_by].html),
        _decision_step(row, state, known[decider_of(row)]),
    ]
    if state == ApprovalState.OPEN:
        return steps
    if continuation is not None:
        steps.append(_continuation_step(continuation))
    if row.decision == "approved" and row.state == ApprovalState.EXPIRED:
        steps.append(
            Step(_("Expired unused"), "clock", "warn", row.updated_at, _("Nothing was sent."))
        )
    elif row.decision == "approved" and row.state == ApprovalState.CANCELLED:
        steps.append(Step(_("Voided"), "ban", "calm", row.updated_at, _("Nothing was sent.")))
    elif row.decision == "approved":
        steps += _call_steps(row, what, call)
    return steps


def _decision_step(row: Approval, state: str, decider: Who) -> Step:
    text = decider.html
    if row.decision == "approved":
        return Step(_("Approved"), "check-circle", "ok", row.decided_at, text)
    if row.decision == "denied":
        return Step(_("Denied"), "x-circle", "danger", row.decided_at, text)
    if state == ApprovalState.EXPIRED:
        at = row.decided_at or row.expires_at
        return Step(_("Expired"), "clock", "warn", at, _("Nobody decided in time."))
    if state == ApprovalState.CANCELLED:
        at = row.decided_at or row.updated_at
        return Step(_("Cancelled"), "ban", "calm", at, _("There is nothing to decide any more."))
    return Step(_("Decision"), "ring-dashed")


def _continuation_step(continuation: Continuation) -> Step:
    if continuation.state == Owed.DONE:
        text = _("The decision reached the job.")
        return Step(_("Carried through"), "arrow-right", "ok", continuation.finished_at, text)
    return Step(_("Carried through"), "clock", "warn", None, _("Recorded, continuing."))


def _call_steps(row: Approval, what: str, call: ToolCall | None) -> list[Step]:
    sent = Step(_("Call sent"), "sent", "info" if row.consumed_at else "calm", row.consumed_at)
    if call is None or what == "not_started":
        return [Step(_("Call"), "ring-dashed", text=_("Not started."))]
    if call.state == CallState.DONE:
        answer = _("HTTP %(status)s") % {"status": call.http_status} if call.http_status else ""
        return [sent, Step(_("Answered"), "check-circle", "ok", call.finished_at, answer)]
    if call.state == CallState.FAILED:
        text = to_html(call.error_code) if call.error_code else ""
        return [sent, Step(_("Not executed"), "x-circle", "danger", call.finished_at, text)]
    if what == "uncertain":
        text = _("Sent, no answer saved. It is not sent again.")
        return [sent, Step(_("Uncertain"), "question", "unknown", call.updated_at, text)]
    return [sent, Step(_("Answer"), "ring-dashed")]
