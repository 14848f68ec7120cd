"""One tool call: what was sent, what came back, and an operator's word when nobody knows (D3)."""

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.access import needs
from console.acting import actor_of, refused
from console.bodies import body_view
from console.forms import ConsoleForm, NoteField
from console.migrated import needs_migration
from console.queries.actors import who_of
from console.queries.approvals import uncertain_calls
from console.queries.audit import acts_on
from console.responses import Screen
from console.step_up import step_up
from console.views.approval_page import arguments_view
from console.views.call_parts import bound_to
from console.views.job_page import state_shown
from console.waking import store_of, wake_worker
from console.words import act_text
from kernel import clock
from kernel.conf import conf
from kernel.errors import KernelError
from kernel.ids import is_id
from kernel.jobs.resolution import resolve_call
from kernel.models import Approval, Invocation, Job, Tool, ToolCall
from kernel.schema import AGENT_JOBS
from kernel.states import CallState

ACTS_SHOWN = 10
DETAIL, RESOLVE_PART = "console/jobs/call.html", "console/jobs/_resolve.html"


class ResolveCallForm(ConsoleForm):
    """What an operator found at the business system."""

    outcome = forms.ChoiceField(
        label=gettext_lazy("What happened"),
        widget=forms.RadioSelect,
        choices=(
            ("done", gettext_lazy("It was done: the job goes on as if the tool had said so")),
            ("not_done", gettext_lazy("It was not done: the job is told that the call failed")),
        ),
    )
    note = NoteField(label=gettext_lazy("How do you know?"))

    def clean_note(self) -> str:
        """The kernel keeps one line."""
        return " ".join(str(self.cleaned_data["note"]).split())


def _recording(request: HttpRequest, call_id: str) -> str:
    known = dict(ResolveCallForm.base_fields["outcome"].choices)  # type: ignore[attr-defined]  # it has
    found = known.get(request.POST.get("outcome", ""), "?")
    words = {"tool": _call_or_404(call_id).tool, "outcome": found}
    return _("Record about the call of %(tool)s: “%(outcome)s”") % words


@needs("view", post="operate")
@needs_migration(AGENT_JOBS)
@step_up(_recording)
def call(request: HttpRequest, call_id: str) -> HttpResponse:
    """One call; POST records what happened to an uncertain one."""
    row = _call_or_404(call_id)
    screen = Screen(request, DETAIL, RESOLVE_PART)
    form = ResolveCallForm(request.POST if request.method == "POST" else None)
    context = _context(row, form)
    if request.method != "POST":
        return screen.show(context)
    if not form.is_valid():
        return screen.invalid(context)
    back = reverse("call", args=[row.id])
    try:
        resolve_call(
            call_id=row.id, actor=actor_of(request), store=store_of(request), **form.cleaned_data
        )
    except KernelError as error:
        context = _context(_call_or_404(row.id), form)
        return refused(
            request, screen, error, context, form=form, back=back, subject=f"call:{row.id}"
        )
    wake_worker(request)
    return screen.done(to=back, message=_("Recorded."))


def _context(row: ToolCall, form: ResolveCallForm) -> dict[str, Any]:
    job = Job.objects.defer("input_text", "result_text").filter(id=row.job_id).first()
    tool = Tool.objects.filter(id=row.tool).first()
    invocation = None if job else Invocation.objects.filter(id=row.job_id).first()
    response = row.response_text.encode()
    rows = Approval.objects.defer("arguments_text")
    return {
        "row": row,
        "job": job,
        "invocation": invocation,
        "asker": who_of([invocation.requested_by])[invocation.requested_by] if invocation else None,
        "state": state_shown(row, uncertain=uncertain_calls([row], now=clock.now())),
        "tool": tool,
        "bound": bound_to(tool, row.tool_version),
        "was_sent": _was_sent(row),
        "arguments": arguments_view(row.arguments_text),
        "response": body_view(
            response,
            content_type="application/json",
            total_bytes=max(row.response_bytes or 0, len(response)),
            bytes_max=conf.model_view_bytes_max,
        )
        if response
        else None,
        "approval": rows.filter(id=row.approval_id).first() if row.approval_id else None,
        "form": form,
        "acts": [
            {"row": act, "text": act_text(act.action)}
            for act in acts_on(f"call:{row.id}", count=ACTS_SHOWN)
        ],
    }


def _was_sent(row: ToolCall) -> bool:
    """Whether it left for the tool for certain; a failed call did so if there was an answer."""
    return row.state in (CallState.DONE, CallState.DISPATCHING) or row.http_status is not None


def _call_or_404(call_id: str) -> ToolCall:
    row = ToolCall.objects.filter(id=call_id).first() if is_id(call_id, chars_max=64) else None
    if row is None:
        raise Http404
    return row
