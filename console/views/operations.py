"""Operations: long acts over a frozen set - plan, progress, results, report (F9)."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST, require_safe

from console.access import needs
from console.acting import actor_of, refused
from console.csv_text import Page, csv_download
from console.filters import read_filters
from console.forms import ConsoleForm, NoteField
from console.middleware import is_poll
from console.migrated import needs_migration
from console.paging import Cursor
from console.queries.actors import who_of
from console.queries.operations import FILTERS, item_page, operation_page
from console.responses import Screen
from console.step_up import step_up
from console.views.form_page import Done, FormPage, run_form
from console.views.operation_page import (
    course_of,
    kind_text,
    operation_context,
    operation_or_404,
    version_text,
    why_not,
)
from console.waking import start_pass
from kernel import clock, operations
from kernel.errors import Conflict, KernelError
from kernel.schema import DELIVERY
from kernel.states import OperationState

DETAIL, PART = "console/operations/detail.html", "console/operations/_state.html"
REPORT_HEAD = ("number", "object_id", "result", "outcome", "at")
REPORT_PAGE_ROWS = 1_000


class ReasonForm(ConsoleForm):
    """Why an operation is started, stopped or resumed; kept as one line."""

    reason = NoteField(label=gettext_lazy("Reason"))

    def clean_reason(self) -> str:
        """The kernel keeps one line."""
        return " ".join(str(self.cleaned_data["reason"]).split())


@needs("view")
@require_GET
@needs_migration(DELIVERY)
def index(request: HttpRequest) -> HttpResponse:
    """One page of long operations. Constant queries."""
    chosen = read_filters(request.GET, FILTERS)
    cursor = Cursor.read(request.GET)
    found = operation_page(chosen, cursor)
    now = clock.now()
    known = who_of({row.created_by for row in found.rows})
    return Screen(request, "console/operations/index.html", "console/operations/_list.html").show(
        {
            "rows": [
                {
                    "row": row,
                    "kind": kind_text(row.kind),
                    "course": course_of(row, now=now),
                    "by": known[row.created_by],
                }
                for row in found.rows
            ],
            "page": found.page,
            "chosen": chosen,
            "is_later": cursor is not None,
        }
    )


@needs("view")
@require_safe
@needs_migration(DELIVERY)
def detail(request: HttpRequest, operation_id: str) -> HttpResponse:
    """One operation. A poll answers 204 while it has not moved, else its progress."""
    row = operation_or_404(operation_id)
    if is_poll(request):
        seen = request.GET.get("seen", "")
        if seen == version_text(row):
            return HttpResponse(status=204)
        if seen.endswith(f"-{OperationState.PLANNING}") and row.state != OperationState.PLANNING:
            return HttpResponse(status=204, headers={"HX-Refresh": "true"})  # the plan is there
        request.GET = type(request.GET)("")  # a poll carries no filter of items
    context = operation_context(request, row) | {"form": ReasonForm(initial={"reason": row.reason})}
    return Screen(request, DETAIL, PART).show(context)


def _starting(request: HttpRequest, operation_id: str) -> str:
    row = operation_or_404(operation_id)
    words = {"what": kind_text(row.kind), "n": f"{row.item_count:,}"}
    return _("Start: %(what)s, %(n)s in its frozen set") % words


@needs("operate")
@require_POST
@needs_migration(DELIVERY)
@step_up(_starting)
def apply(request: HttpRequest, operation_id: str) -> HttpResponse:
    """Start a planned operation: exactly the set whose digest the page showed (F9)."""
    row = operation_or_404(operation_id)
    screen = Screen(request, DETAIL, PART)
    form = ReasonForm(request.POST)
    back = reverse("operation", args=[row.id])
    if not form.is_valid():
        return screen.invalid(operation_context(request, row) | {"form": form})
    try:
        operations.apply(
            operation_id=row.id,
            actor=actor_of(request),
            reason=form.cleaned_data["reason"],
            seen_digest=request.POST.get("digest", ""),
        )
    except KernelError as error:
        context = operation_context(request, operation_or_404(row.id)) | {"form": form}
        subject = f"operation:{row.id}"
        return refused(request, screen, error, context, form=form, back=back, subject=subject)
    start_pass(request, "operations")
    return screen.done(to=back, message=_("Started. Its progress is shown here."))


@needs("operate")
@needs_migration(DELIVERY)
def pause(request: HttpRequest, operation_id: str) -> HttpResponse:
    """Stop a running operation for a while, after a confirmation."""
    return _confirmed(
        request,
        operation_id,
        "pause",
        operations.pause,
        title=_("Pause this operation?"),
        submit=_("Pause"),
        lead=_("What was begun is finished; then nothing more is done until somebody resumes it."),
        done=_("Paused."),
    )


@needs("operate")
@needs_migration(DELIVERY)
def resume(request: HttpRequest, operation_id: str) -> HttpResponse:
    """Let a paused operation go on, after a confirmation."""
    return _confirmed(
        request,
        operation_id,
        "resume",
        operations.resume,
        title=_("Resume this operation?"),
        submit=_("Go on"),
        lead=_("It goes on where it stopped, over the same frozen set."),
        done=_("It goes on."),
    )


@needs("operate")
@needs_migration(DELIVERY)
def cancel(request: HttpRequest, operation_id: str) -> HttpResponse:
    """End an operation for good, after a confirmation."""
    return _confirmed(
        request,
        operation_id,
        "cancel",
        operations.cancel,
        title=_("Cancel this operation?"),
        submit=_("Cancel the operation"),
        lead=_("What is done stays done; the rest of the set is not touched. This is final."),
        done=_("Cancelled."),
        kind="danger-fill",
    )


def _confirmed(
    request: HttpRequest,
    operation_id: str,
    what: str,
    verb: Callable[..., Any],
    *,
    done: str,
    **words: str,
) -> HttpResponse:
    row = operation_or_404(operation_id)
    course = course_of(row, now=clock.now())
    page = FormPage(
        back=reverse("operation", args=[row.id]),
        crumb=row.id,
        permission="operate",
        subject=f"operation:{row.id}",
        facts=[
            (_("Operation"), kind_text(row.kind)),
            (_("State"), row.state),
            (_("So far"), f"{course.handled:,} / {row.item_count:,}"),
        ],
        **words,
    )

    def act(data: dict[str, Any]) -> Done:
        if why := why_not(operation_or_404(row.id))[what]:
            raise Conflict(why)
        verb(operation_id=row.id, actor=actor_of(request), reason=data["reason"])
        start_pass(request, "operations")
        return Done(page.back, done)

    return run_form(request, page, ReasonForm(request.POST or None), act)


@needs("view")
@require_GET
@needs_migration(DELIVERY)
def report(request: HttpRequest, operation_id: str) -> StreamingHttpResponse:
    """Every item and what became of it, as CSV; one page of it is in memory."""
    row = operation_or_404(operation_id)

    def page_after(position: int) -> Page:
        found = item_page(row, after=position, rows=REPORT_PAGE_ROWS)
        lines = [
            (one.sequence, one.object_id, one.state, one.outcome_text, one.updated_at.isoformat())
            for one in found.rows
        ]
        return lines, found.after

    name = f"{row.id}.csv"
    return csv_download(name=name, head=REPORT_HEAD, page_after=page_after, start=0)
