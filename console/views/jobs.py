"""Jobs and workers: depth, lease holders, pause switches, the list, one job and its acts."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_safe

from console.access import needs
from console.acting import actor_of
from console.filters import read_filters
from console.forms import ConsoleForm, NoteField
from console.middleware import is_poll
from console.migrated import needs_migration
from console.paging import Cursor
from console.queries.actors import Who, who_of
from console.queries.jobs import FILTERS, depth, holders, job_page
from console.responses import Screen
from console.views.form_page import Done, FormPage, run_form
from console.views.job_page import has_moved, job_context, job_or_404, why_not
from console.waking import store_of, wake_worker
from kernel import clock
from kernel.errors import Conflict
from kernel.ids import is_id
from kernel.jobs import cancel_job, resume_parked_job
from kernel.models import Pause, Route
from kernel.schema import AGENT_JOBS
from kernel.state.pauses import GLOBAL, ROUTE_PREFIX, pause, unpause

ROUTES_SHOWN_MAX = 100


class ReasonForm(ConsoleForm):
    """An act that needs a reason."""

    reason = NoteField(label=gettext_lazy("Reason"))

    def clean_reason(self) -> str:
        """The kernel keeps one line."""
        return " ".join(str(self.cleaned_data["reason"]).split())


class FreeReasonForm(ReasonForm):
    """An act whose reason may be left out."""

    reason = NoteField(label=gettext_lazy("Reason"), required=False)


@needs("view")
@require_GET
@needs_migration(AGENT_JOBS)
def index(request: HttpRequest) -> HttpResponse:
    """How much waits, who works, what is paused, and the list. Constant queries."""
    chosen = read_filters(request.GET, FILTERS)
    cursor = Cursor.read(request.GET)
    now = clock.now()
    found = job_page(chosen, cursor)
    routes = list(Route.objects.order_by("id")[:ROUTES_SHOWN_MAX])
    pauses = {row.scope: row for row in Pause.objects.all()}
    known = who_of({row.paused_by for row in pauses.values()})
    return Screen(request, "console/jobs/index.html", "console/jobs/_list.html").show(
        {
            "rows": found.rows,
            "page": found.page,
            "cut_at": found.cut_at,
            "chosen": chosen,
            "is_later": cursor is not None,
            "depth": depth(),
            "holders": holders(now=now),
            "routes": [_route_line(row, pauses, known) for row in routes],
            "most": ROUTES_SHOWN_MAX if len(routes) == ROUTES_SHOWN_MAX else 0,
            "global_pause": pauses.get(GLOBAL),
            "paused_by": known[pauses[GLOBAL].paused_by] if GLOBAL in pauses else None,
        }
    )


def _route_line(row: Route, pauses: dict[str, Pause], known: dict[str, Who]) -> dict[str, Any]:
    found = pauses.get(f"{ROUTE_PREFIX}{row.id}")
    return {"row": row, "pause": found, "by": known[found.paused_by] if found else None}


@needs("view")
@require_safe
@needs_migration(AGENT_JOBS)
def detail(request: HttpRequest, job_id: str) -> HttpResponse:
    """One job. A poll answers 204 while it has not moved."""
    if is_poll(request) and not has_moved(job_id, seen=request.GET.get("seen", "")):
        return HttpResponse(status=204)
    context = job_context(job_or_404(job_id))
    return Screen(request, "console/jobs/detail.html", "console/jobs/_run.html").show(context)


@needs("operate")
@needs_migration(AGENT_JOBS)
def cancel(request: HttpRequest, job_id: str) -> HttpResponse:
    """Cancel a job: its open questions are cancelled in the same transaction (C8)."""
    row = job_or_404(job_id)
    back = reverse("job", args=[row.id])
    page = FormPage(
        title=_("Cancel this job?"),
        submit=_("Cancel the job"),
        back=back,
        crumb=row.id,
        kind="danger-fill",
        permission="operate",
        lead=_(
            "No step follows. Its open questions are cancelled and unused grants are void. A call"
            " that was sent already is not taken back."
        ),
        subject=f"job:{row.id}",
        facts=[(_("Job"), row.id), (_("Route"), row.route_id), (_("State"), row.state)],
    )

    def act(data: dict[str, Any]) -> Done:
        if why := why_not(row)["cancel"]:
            raise Conflict(why)
        cancel_job(
            store=store_of(request),
            job_id=row.id,
            actor=actor_of(request),
            reason=data["reason"],
        )
        return Done(back, _("Cancelled."))

    return run_form(request, page, ReasonForm(request.POST or None), act)


@needs("operate")
@needs_migration(AGENT_JOBS)
def resume(request: HttpRequest, job_id: str) -> HttpResponse:
    """Let a parked job go on: it is queued again (D1)."""
    row = job_or_404(job_id)
    back = reverse("job", args=[row.id])
    page = FormPage(
        title=_("Resume this job?"),
        submit=_("Resume the job"),
        back=back,
        crumb=row.id,
        permission="operate",
        lead=_(
            "It is queued again with fresh attempts. Finished steps are read, not repeated; a call"
            " that was sent is never sent again."
        ),
        subject=f"job:{row.id}",
        facts=[
            (_("Job"), row.id),
            (_("State"), row.state),
            (_("Attempts"), row.attempts),
            (_("Error"), row.error_code),
        ],
    )

    def act(data: dict[str, Any]) -> Done:
        if why := why_not(row)["resume"]:
            raise Conflict(why)
        resume_parked_job(
            store=store_of(request),
            job_id=row.id,
            actor=actor_of(request),
            reason=data["reason"],
        )
        wake_worker(request)
        return Done(back, _("Queued again."))

    return run_form(request, page, FreeReasonForm(request.POST or None), act)


@needs("operate")
@needs_migration(AGENT_JOBS)
def pause_scope(request: HttpRequest, scope: str) -> HttpResponse:
    """Stop new work, of everything or of one route; reads go on (D4)."""
    what = _scope_words(scope)
    page = FormPage(
        title=_("Pause %(what)s?") % {"what": what},
        submit=_("Pause"),
        back=reverse("jobs"),
        crumb=_("Jobs and workers"),
        kind="danger-fill",
        permission="operate",
        lead=_(
            "No new job is claimed and no new tool call is sent. What was sent goes on to its end;"
            " decisions are still recorded, and everything can be read."
        ),
        subject=f"pause:{scope}",
    )

    def act(data: dict[str, Any]) -> Done:
        pause(scope=scope, reason=data["reason"], actor=actor_of(request))
        return Done(page.back, _("Paused: %(what)s.") % {"what": what})

    return run_form(request, page, ReasonForm(request.POST or None), act)


@needs("operate")
@needs_migration(AGENT_JOBS)
def unpause_scope(request: HttpRequest, scope: str) -> HttpResponse:
    """Let new work go on."""
    what = _scope_words(scope)
    found = Pause.objects.filter(scope=scope).first()
    page = FormPage(
        title=_("Let %(what)s go on?") % {"what": what},
        submit=_("Go on"),
        back=reverse("jobs"),
        crumb=_("Jobs and workers"),
        permission="operate",
        lead=_("Jobs that waited are claimed again, oldest first."),
        subject=f"pause:{scope}",
        facts=[
            (_("Paused by"), who_of([found.paused_by])[found.paused_by].text),
            (_("Reason"), found.reason),
        ]
        if found
        else [],
    )

    def act(data: dict[str, Any]) -> Done:
        unpause(scope=scope, actor=actor_of(request), reason=data["reason"])
        wake_worker(request)
        return Done(page.back, _("It goes on: %(what)s.") % {"what": what})

    return run_form(request, page, FreeReasonForm(request.POST or None), act)


def _scope_words(scope: str) -> str:
    """A scope in words. Http404 when there is no such route."""
    if scope == GLOBAL:
        return _("all jobs")
    route_id = scope.removeprefix(ROUTE_PREFIX)
    known = scope.startswith(ROUTE_PREFIX) and is_id(route_id)
    if not known or not Route.objects.filter(id=route_id).exists():
        raise Http404
    return _("route %(id)s") % {"id": route_id}
