"""Routes: one kind of job each - who runs it, with which service and tools, within which limits."""

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_safe

from console.access import needs
from console.acting import actor_of
from console.forms import ConsoleForm, IdTextField, NoteField, UsdField
from console.migrated import needs_migration
from console.queries.actors import who_of
from console.queries.audit import acts_on
from console.responses import Screen, form_version
from console.views.form_page import Done, FormPage, run_form
from console.views.tools import at_field
from console.words import act_text, changes_of
from kernel.errors import NotFound
from kernel.ids import is_id
from kernel.jobs import registry, routes
from kernel.jobs.routes import INSTRUCTIONS_CHARS_MAX, tools_of
from kernel.models import Pause, Route
from kernel.schema import AGENT_JOBS
from kernel.state.pauses import ROUTE_PREFIX
from kernel.usage import list_services

ACTS_SHOWN = 50
TARGETS = (
    ("agent", gettext_lazy("Workers of this product: an agent run")),
    ("executor", gettext_lazy("Executors outside, over HTTP")),
)


class RouteForm(ConsoleForm):
    """A route's settings and limits."""

    target = forms.ChoiceField(
        label=gettext_lazy("Who runs it"), widget=forms.RadioSelect, choices=TARGETS
    )
    service_id = forms.ChoiceField(label=gettext_lazy("Service"), required=False)
    instructions = forms.CharField(
        label=gettext_lazy("Instructions"),
        required=False,
        max_length=INSTRUCTIONS_CHARS_MAX,
        widget=forms.Textarea(attrs={"rows": 5, "class": "input", "data-keep": ""}),
        help_text=gettext_lazy("The system message of every run."),
    )
    tools = forms.MultipleChoiceField(
        label=gettext_lazy("Tools it may call"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    steps_max = forms.IntegerField(label=gettext_lazy("Most steps"), min_value=1)
    tokens_max = forms.IntegerField(
        label=gettext_lazy("Most tokens"),
        required=False,
        min_value=1,
        help_text=gettext_lazy("Empty: no limit."),
    )
    cost_nano_max = UsdField(
        label=gettext_lazy("Most USD"), required=False, help_text=gettext_lazy("Empty: no limit.")
    )
    run_seconds_max = forms.IntegerField(
        label=gettext_lazy("Longest run in seconds"),
        min_value=1,
        help_text=gettext_lazy("Waiting for people does not count."),
    )
    approval_seconds = forms.IntegerField(
        label=gettext_lazy("A question stays open, in seconds"), min_value=1
    )

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        services = [row.id for row in list_services() if row.active or row.id == self._service()]
        chosen = set(self.initial.get("tools", ()))
        tools = [row.id for row in registry.list_tools() if row.active or row.id in chosen]
        self.fields["service_id"].choices = [("", "–"), *((one, one) for one in services)]  # type: ignore[attr-defined]  # it has
        self.fields["tools"].choices = [(one, one) for one in tools]  # type: ignore[attr-defined]  # it has

    def _service(self) -> str:
        return str(self.initial.get("service_id", ""))


class NewRouteForm(RouteForm):
    """A new route: its id is what a job names."""

    route_id = IdTextField(
        label=gettext_lazy("Id"), help_text=gettext_lazy("What a job names. Never changes.")
    )
    field_order = ("route_id",)


class ChangeRouteForm(RouteForm):
    """A route's next version; open or retired."""

    active = forms.BooleanField(label=gettext_lazy("Open for new jobs"), required=False)
    reason = NoteField(label=gettext_lazy("Reason"), required=False)


@needs("view")
@require_GET
@needs_migration(AGENT_JOBS)
def index(request: HttpRequest) -> HttpResponse:
    """All routes by id."""
    paused = set(Pause.objects.values_list("scope", flat=True))
    rows = [
        {
            "row": row,
            "tools": tools_of(row),
            "is_paused": f"{ROUTE_PREFIX}{row.id}" in paused,
        }
        for row in routes.list_routes()
    ]
    return Screen(request, "console/routes/index.html", "console/routes/_list.html").show(
        {"rows": rows}
    )


@needs("view")
@require_safe
@needs_migration(AGENT_JOBS)
def detail(request: HttpRequest, route_id: str) -> HttpResponse:
    """One route, and every version's act."""
    row = _route_or_404(route_id)
    acts = acts_on(f"route:{row.id}", count=ACTS_SHOWN)
    scope = f"{ROUTE_PREFIX}{row.id}"
    pause = Pause.objects.filter(scope=scope).first()
    return Screen(request, "console/routes/detail.html", "console/_acts.html").show(
        {
            "row": row,
            "tools": tools_of(row),
            "scope": scope,
            "pause": pause,
            "paused_by": who_of([pause.paused_by])[pause.paused_by] if pause else None,
            "acts": [
                {"row": act, "text": act_text(act.action), "changes": changes_of(act)}
                for act in acts
            ],
        }
    )


@needs("configure")
@needs_migration(AGENT_JOBS)
def create(request: HttpRequest) -> HttpResponse:
    """A new route."""
    page = FormPage(
        title=_("New route"),
        submit=_("Add the route"),
        back=reverse("routes"),
        crumb=_("Routes"),
        lead=_("A route is one kind of job: who runs it, with what, within which limits."),
    )
    initial = {
        "target": "agent",
        "steps_max": Route._meta.get_field("steps_max").default,
        "run_seconds_max": Route._meta.get_field("run_seconds_max").default,
        "approval_seconds": Route._meta.get_field("approval_seconds").default,
    }

    def act(data: dict[str, Any]) -> Done:
        row = at_field(lambda: routes.create_route(actor=actor_of(request), **data))
        return Done(reverse("route", args=[row.id]), _("Route %(id)s added.") % {"id": row.id})

    return run_form(request, page, NewRouteForm(request.POST or None, initial=initial), act)


@needs("configure")
@needs_migration(AGENT_JOBS)
def change(request: HttpRequest, route_id: str) -> HttpResponse:
    """A route's next version; jobs that run read it at their next step."""
    row = _route_or_404(route_id)
    page = FormPage(
        title=_("Change route %(id)s") % {"id": row.id},
        submit=_("Save the changes"),
        back=reverse("route", args=[row.id]),
        crumb=row.id,
        lead=_("Jobs that are under way read the change at their next step."),
        subject=f"route:{row.id}",
    )
    names = [name for name in ChangeRouteForm.base_fields if hasattr(row, name)]
    initial = {name: getattr(row, name) for name in names} | {"tools": tools_of(row)}

    def act(data: dict[str, Any]) -> Done:
        seen, actor = form_version(request), actor_of(request)
        at_field(
            lambda: routes.change_route(route_id=row.id, actor=actor, seen_version=seen, **data)
        )
        return Done(page.back, _("Saved."))

    form = ChangeRouteForm(request.POST or None, initial=initial)
    return run_form(request, page, form, act, version=row.version)


def _route_or_404(route_id: str) -> Route:
    if not is_id(route_id):
        raise Http404
    try:
        row: Route = routes.get_route(route_id=route_id)
    except NotFound:
        raise Http404 from None
    return row
