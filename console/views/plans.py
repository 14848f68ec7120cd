"""Plans of bulk acts on dead letters: a filter in words, then a frozen set to confirm (F9).

GET never freezes. POST freezes the set and leads to the page of its operation, where nothing is
done before somebody confirms that very set by its digest.
"""

from collections.abc import Callable
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.access import needs
from console.acting import actor_of
from console.filters import BadFilter, Chosen, read_filters
from console.forms import ConsoleForm, NoteField
from console.migrated import needs_migration
from console.queries.dead_letters import FILTERS, sample_of
from console.responses import Screen
from console.views.form_page import Done, FormPage, run_form
from console.waking import start_pass
from kernel import operations
from kernel.conf import conf
from kernel.errors import InvalidInput
from kernel.models import Operation
from kernel.operations import Filter, Preview
from kernel.schema import DELIVERY, REPLAY
from kernel.states import DeadLetterState, OperationState

NO_FILTER, NO_FILTER_PART = (
    "console/dead_letters/no_filter.html",
    "console/dead_letters/_no_filter.html",
)


class PlanForm(ConsoleForm):
    """Why a set is planned, and how fast it may be worked off."""

    reason = NoteField(label=gettext_lazy("Reason"))
    rate_per_second = forms.IntegerField(
        label=gettext_lazy("At most so many a second"),
        min_value=1,
        max_value=100_000,
        help_text=gettext_lazy("Start small when the receiver has just recovered."),
    )

    def clean_reason(self) -> str:
        """The kernel keeps one line."""
        return " ".join(str(self.cleaned_data["reason"]).split())


@needs("operate")
@needs_migration(REPLAY, DELIVERY)
def replay(request: HttpRequest) -> HttpResponse:
    """Plan a replay of all open dead letters that a filter finds."""
    return _plan(
        request,
        operations.plan_replay,
        title=_("Plan a replay"),
        lead=_(
            "First the set is frozen: what matches now, and nothing that comes later. Nothing is"
            " sent by this; the next page shows the plan and asks."
        ),
    )


@needs("operate")
@needs_migration(REPLAY, DELIVERY)
def archive(request: HttpRequest) -> HttpResponse:
    """Plan to set aside all open dead letters that a filter finds."""
    return _plan(
        request,
        operations.plan_archive,
        title=_("Plan to archive"),
        lead=_(
            "First the set is frozen: what matches now, and nothing that comes later. Nothing is"
            " archived by this; the next page shows the plan and asks. Each keeps the reason."
        ),
    )


def _plan(
    request: HttpRequest, verb: Callable[..., Operation], *, title: str, lead: str
) -> HttpResponse:
    chosen = read_filters(request.GET, FILTERS)
    try:
        wanted = filter_from(chosen)
        found = operations.preview(filter=wanted)
    except InvalidInput as error:
        error.message = _("Nothing was planned: no filter is set.")
        error.details.clear()
        return Screen(request, NO_FILTER, NO_FILTER_PART).problem(error, {"title": title})
    group = chosen.values.get("group", "")
    page = FormPage(
        title=title,
        submit=_("Freeze the set and show the plan"),
        back=f"{reverse('dead-letters-list')}{chosen.query()}",
        crumb=_("Dead letters"),
        permission="operate",
        lead=lead,
        facts=[
            *((chip.label, chip.text) for chip in chosen.chips),
            *(((_("Error"), sample_of(group)),) if group else ()),
            (_("Matches now"), count_text(found)),
        ],
    )

    def act(data: dict[str, Any]) -> Done:
        row = verb(filter=wanted, actor=actor_of(request), **data)
        done = _("The set is frozen. Nothing was done.")
        if row.state == OperationState.PLANNING:
            start_pass(request, "operations")
            done = _("The set is being frozen. Nothing is done by that.")
        return Done(reverse("operation", args=[row.id]), done)

    initial = {"rate_per_second": conf.operation_items_per_second_count}
    return run_form(request, page, PlanForm(request.POST or None, initial=initial), act)


def filter_from(chosen: Chosen) -> Filter:
    """The list's filter as the kernel's. BadFilter (400) for a state other than open."""
    values = chosen.values
    if values.get("state", DeadLetterState.OPEN) != DeadLetterState.OPEN:
        raise BadFilter("state", values["state"], _("only open dead letters can be planned for"))
    return Filter(
        fingerprint=values.get("group", ""),
        destination_id=values.get("destination", ""),
        account_id=values.get("account", ""),
        since=values.get("since"),
        before=values.get("until"),
    )


def count_text(found: Preview) -> str:
    """'1 open dead letter', '10,000 or more open dead letters'."""
    if found.capped:
        return _("%(n)s or more open dead letters") % {"n": f"{found.count:,}"}
    if found.count == 1:
        return _("1 open dead letter")
    return _("%(n)s open dead letters") % {"n": f"{found.count:,}"}
