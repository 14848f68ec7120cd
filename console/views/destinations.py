"""Destinations: where an account's notifications go, whether they arrive, a test (F1, F7, L4)."""

import os
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST, require_safe

from console.access import needs
from console.acting import actor_of, refused
from console.forms import ConsoleForm, IdTextField, NoteField
from console.migrated import needs_migration
from console.queries.audit import acts_on
from console.queries.destinations import (
    SHOWN_MAX,
    destination_row,
    destination_rows,
    events_of,
    latest_attempts,
    rules_of,
)
from console.queries.notifications import latest_at
from console.responses import Screen, form_version
from console.views.form_page import Done, FormPage, run_form
from console.views.tools import at_field
from console.waking import store_of
from console.words import act_text, changes_of
from kernel import clock, outbox
from kernel.conf import conf
from kernel.delivery import destinations
from kernel.delivery.fields import CHANNELS
from kernel.errors import KernelError, NotFound
from kernel.ids import is_id
from kernel.models import Destination
from kernel.schema import DELIVERY

ACTS_SHOWN = 50
LATEST_SHOWN, ATTEMPTS_SHOWN = 8, 8
DETAIL, PART = "console/destinations/detail.html", "console/destinations/_state.html"
CHANNEL_WORDS = {
    outbox.WEBHOOK: gettext_lazy("Webhook, signed"),
    outbox.EMAIL: gettext_lazy("E-mail"),
    outbox.APPRISE: gettext_lazy("Chat service (apprise)"),
    outbox.EXECUTOR: gettext_lazy("An executor's child job"),
}
EVENT_WORDS = {
    outbox.JOB_FINISHED: gettext_lazy("A job ended"),
    outbox.APPROVAL_OPENED: gettext_lazy("A question was asked"),
    outbox.APPROVAL_DECIDED: gettext_lazy("A question was decided"),
    outbox.REQUEST_UNKNOWN: gettext_lazy("A model request's outcome is unknown"),
    outbox.REQUEST_UNPRICED: gettext_lazy("A model request's charge waits for a price"),
    outbox.DEAD_LETTER_CREATED: gettext_lazy("A notification was given up"),
    outbox.MESSAGE: gettext_lazy("A message sent over the API"),
}


class DestinationForm(ConsoleForm):
    """A destination. The kernel checks what is written; its errors come back at the field."""

    address = forms.CharField(
        label=gettext_lazy("Address"),
        max_length=500,
        widget=forms.TextInput(attrs={"class": "input mono", "spellcheck": "false"}),
        help_text=gettext_lazy(
            "A URL, a mail address, an apprise URL, or whatever the executor understands."
        ),
    )
    events = forms.MultipleChoiceField(
        label=gettext_lazy("Events it takes"), widget=forms.CheckboxSelectMultiple
    )
    secret_env = forms.CharField(
        label=gettext_lazy("Signing secret's variable"),
        max_length=120,
        required=False,
        widget=forms.TextInput(attrs={"class": "input mono", "spellcheck": "false"}),
        help_text=gettext_lazy(
            "Name of an environment variable, never the secret itself; two with a comma while they"
            " rotate. Webhooks need one, other channels none."
        ),
    )
    sender = forms.CharField(
        label=gettext_lazy("Sender"),
        max_length=200,
        required=False,
        help_text=gettext_lazy("For e-mail; a replay uses the same one."),
    )
    allow_private = forms.BooleanField(
        label=gettext_lazy("Allow a loopback or private address"), required=False
    )

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        prefixes = [one for one in self.initial.get("events", ()) if one not in outbox.EVENTS]
        choices = [(one, f"{EVENT_WORDS.get(one, one)} ({one})") for one in outbox.EVENTS]
        choices += [(one, _("Everything below %(p)s") % {"p": one}) for one in prefixes]
        self.fields["events"].choices = choices  # type: ignore[attr-defined]  # it has


class NewDestinationForm(DestinationForm):
    """A new destination of an account."""

    account_id = IdTextField(label=gettext_lazy("Account"))
    destination_id = IdTextField(
        label=gettext_lazy("Id"), required=False, help_text=gettext_lazy("Empty: one is made.")
    )
    channel = forms.ChoiceField(
        label=gettext_lazy("Channel"),
        widget=forms.RadioSelect,
        choices=[(one, CHANNEL_WORDS[one]) for one in CHANNELS],
        help_text=gettext_lazy("Never changes."),
    )
    field_order = ("account_id", "destination_id", "channel")


class ChangeDestinationForm(DestinationForm):
    """A destination's next version; switched on or off."""

    active = forms.BooleanField(label=gettext_lazy("Switched on"), required=False)
    reason = NoteField(label=gettext_lazy("Reason"), required=False)


class CloseForm(ConsoleForm):
    """How long to leave a destination alone, and why."""

    seconds = forms.IntegerField(
        label=gettext_lazy("For how many seconds"),
        min_value=1,
        max_value=destinations.CLOSED_SECONDS_MAX,
        initial=3600,
    )
    reason = NoteField(label=gettext_lazy("Reason"))

    def clean_reason(self) -> str:
        """The kernel keeps one line."""
        return " ".join(str(self.cleaned_data["reason"]).split())


class OpenForm(ConsoleForm):
    """Why it is worth trying again."""

    reason = NoteField(label=gettext_lazy("Reason"), required=False)


@needs("view")
@require_GET
@needs_migration(DELIVERY)
def index(request: HttpRequest) -> HttpResponse:
    """All destinations by account and id, with their circuits."""
    rows = destination_rows()
    page, part = "console/destinations/index.html", "console/destinations/_list.html"
    most = SHOWN_MAX if len(rows) == SHOWN_MAX else 0
    return Screen(request, page, part).show(
        {"rows": rows, "words": CHANNEL_WORDS, "most": most, "failures_max": _failures_max()}
    )


@needs("view")
@require_safe
@needs_migration(DELIVERY)
def detail(request: HttpRequest, destination_id: str) -> HttpResponse:
    """One destination: its circuit, its last attempts, every version's act."""
    return Screen(request, DETAIL, PART).show(_context(_row_or_404(destination_id)))


def _context(row: Destination) -> dict[str, Any]:
    latest = latest_at(row.id, count=LATEST_SHOWN)
    acts = acts_on(f"destination:{row.id}", count=ACTS_SHOWN)
    return {
        "row": row,
        "at": destination_row(row, now=clock.now()),
        "channel": CHANNEL_WORDS.get(row.channel, row.channel),
        "failures_max": _failures_max(),
        "missing_secrets": _missing_secrets(row),
        "latest": latest,
        "attempts": latest_attempts([one.id for one in latest], count=ATTEMPTS_SHOWN),
        "rules": rules_of(row.id),
        "why_test": "" if row.active else _("It is switched off."),
        "acts": [
            {"row": act, "text": act_text(act.action), "changes": changes_of(act)} for act in acts
        ],
    }


def _failures_max() -> int:
    return int(conf.destination_failures_count_max)


def _missing_secrets(row: Destination) -> list[str]:
    """Names of its variables that this process does not have."""
    names = [name for name in row.secret_env.split(",") if name]
    return [name for name in names if not os.environ.get(name)]


@needs("configure")
@needs_migration(DELIVERY)
def create(request: HttpRequest) -> HttpResponse:
    """A new destination."""
    page = FormPage(
        title=_("New destination"),
        submit=_("Add the destination"),
        back=reverse("destinations"),
        crumb=_("Destinations"),
        lead=_("What happens to the account is sent there, from now on."),
    )
    initial = {"channel": outbox.WEBHOOK, "events": [outbox.JOB_FINISHED]}

    def act(data: dict[str, Any]) -> Done:
        actor, store = actor_of(request), store_of(request)
        row = at_field(lambda: destinations.create_destination(actor=actor, store=store, **data))
        text = _("Destination %(id)s added. Send a test to see whether it arrives.")
        return Done(reverse("destination", args=[row.id]), text % {"id": row.id})

    return run_form(request, page, NewDestinationForm(request.POST or None, initial=initial), act)


@needs("configure")
@needs_migration(DELIVERY)
def change(request: HttpRequest, destination_id: str) -> HttpResponse:
    """A destination's next version; also switches it on and off."""
    row = _row_or_404(destination_id)
    page = FormPage(
        title=_("Change destination %(id)s") % {"id": row.id},
        submit=_("Save the changes"),
        back=reverse("destination", args=[row.id]),
        crumb=row.id,
        lead=_(
            "What waits keeps its recipient; the secret and the rules are those of now. Switched"
            " off, it takes nothing new, and what waits stays where it is."
        ),
        subject=f"destination:{row.id}",
        facts=[(_("Account"), row.account_id), (_("Channel"), row.channel)],
    )
    names = [name for name in ChangeDestinationForm.base_fields if hasattr(row, name)]
    initial = {name: getattr(row, name) for name in names} | {"events": events_of(row)}

    def act(data: dict[str, Any]) -> Done:
        seen, actor, store = form_version(request), actor_of(request), store_of(request)
        at_field(
            lambda: destinations.change_destination(
                destination_id=row.id, seen_version=seen, actor=actor, store=store, **data
            )
        )
        return Done(page.back, _("Saved."))

    form = ChangeDestinationForm(request.POST or None, initial=initial)
    return run_form(request, page, form, act, version=row.version)


@needs("configure")
@require_POST
@needs_migration(DELIVERY)
def send_test(request: HttpRequest, destination_id: str) -> HttpResponse:
    """Queue a test message; its own page then says whether it arrived (L4)."""
    row = _row_or_404(destination_id)
    screen = Screen(request, DETAIL, PART)
    actor = actor_of(request)
    try:
        notification_id = destinations.send_test(destination_id=row.id, actor=actor)
    except KernelError as error:
        form = ConsoleForm(request.POST)
        form.is_valid()
        context = _context(_row_or_404(row.id))
        back = reverse("destination", args=[row.id])
        subject = f"destination:{row.id}"
        return refused(request, screen, error, context, form=form, back=back, subject=subject)
    text = _("A test message is queued. This page says by itself whether it arrived.")
    return screen.done(to=reverse("notification", args=[notification_id]), message=text)


@needs("configure")
@needs_migration(DELIVERY)
def close(request: HttpRequest, destination_id: str) -> HttpResponse:
    """Leave a destination alone for a time; no attempt is used up meanwhile (F2)."""
    row = _row_or_404(destination_id)
    page = _circuit_page(
        row,
        title=_("Leave this destination alone?"),
        submit=_("Close it"),
        lead=_("Nothing is sent to it; what waits keeps its attempts. Then one message is tried."),
        kind="danger-fill",
    )

    def act(data: dict[str, Any]) -> Done:
        destinations.close_destination(destination_id=row.id, actor=actor_of(request), **data)
        return Done(page.back, _("Closed."))

    return run_form(request, page, CloseForm(request.POST or None), act)


@needs("configure")
@needs_migration(DELIVERY)
def reopen(request: HttpRequest, destination_id: str) -> HttpResponse:
    """Send to a closed destination again, now (F2)."""
    row = _row_or_404(destination_id)
    page = _circuit_page(
        row,
        title=_("Send to this destination again?"),
        submit=_("Open it now"),
        lead=_("Its failures are forgotten, and everything that is due is sent at once."),
    )

    def act(data: dict[str, Any]) -> Done:
        destinations.open_destination(destination_id=row.id, actor=actor_of(request), **data)
        return Done(page.back, _("It is open again."))

    return run_form(request, page, OpenForm(request.POST or None), act)


def _circuit_page(row: Destination, **words: str) -> FormPage:
    return FormPage(
        back=reverse("destination", args=[row.id]),
        crumb=row.id,
        subject=f"destination:{row.id}",
        facts=[(_("Destination"), row.id), (_("Failures in a row"), row.failures)],
        **words,
    )


def _row_or_404(destination_id: str) -> Destination:
    if not is_id(destination_id):
        raise Http404
    try:
        row: Destination = destinations.get_destination(destination_id=destination_id)
    except NotFound:
        raise Http404 from None
    return row
