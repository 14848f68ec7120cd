"""Alert rules: which events a person is told about, where, and how often at most (F1, L4)."""

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_safe

from console.access import needs
from console.acting import actor_of, version_of
from console.forms import ConsoleForm, IdTextField, NoteField
from console.migrated import needs_migration
from console.queries.audit import acts_on
from console.queries.destinations import SHOWN_MAX, rule_row, rule_rows
from console.responses import Screen, form_version
from console.views.destinations import EVENT_WORDS
from console.views.form_page import Done, FormPage, run_form
from console.views.tools import at_field
from console.words import act_text, changes_of
from kernel import clock
from kernel.delivery import alerts
from kernel.delivery.destinations import list_destinations
from kernel.errors import LostRace, NotFound
from kernel.ids import is_id
from kernel.models import AlertRule
from kernel.schema import DELIVERY

ACTS_SHOWN = 50


class RuleForm(ConsoleForm):
    """A rule. The kernel checks what is written; its errors come back at the field."""

    event_prefix = forms.ChoiceField(
        label=gettext_lazy("Event"), help_text=gettext_lazy("Of every account.")
    )
    destination_id = forms.ChoiceField(
        label=gettext_lazy("Tell this destination"),
        help_text=gettext_lazy("What it says of an alert's own failure is never an alert."),
    )
    cooldown_seconds = forms.IntegerField(
        label=gettext_lazy("At most one per account in so many seconds"),
        min_value=1,
        max_value=alerts.COOLDOWN_SECONDS_MAX,
        help_text=gettext_lazy("The others are counted; the next alert says how many."),
    )

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        prefix = self.initial.get("event_prefix", "")
        events = [(one, f"{EVENT_WORDS[one]} ({one})") for one in alerts.WATCHED]
        if prefix and prefix not in alerts.WATCHED:
            events.append((prefix, _("Everything below %(p)s") % {"p": prefix}))
        known = [
            (row.id, f"{row.id} ({row.channel}, {row.account_id})") for row in list_destinations()
        ]
        self.fields["event_prefix"].choices = events  # type: ignore[attr-defined]  # it has
        self.fields["destination_id"].choices = known  # type: ignore[attr-defined]  # it has


class NewRuleForm(RuleForm):
    """A new rule."""

    rule_id = IdTextField(
        label=gettext_lazy("Id"), required=False, help_text=gettext_lazy("Empty: one is made.")
    )


class ChangeRuleForm(RuleForm):
    """A rule as it is from now on; switched on or off."""

    active = forms.BooleanField(label=gettext_lazy("Switched on"), required=False)
    reason = NoteField(label=gettext_lazy("Reason"), required=False)


@needs("view")
@require_GET
@needs_migration(DELIVERY)
def index(request: HttpRequest) -> HttpResponse:
    """All rules by id."""
    rows = rule_rows()
    page, part = "console/alert_rules/index.html", "console/alert_rules/_list.html"
    most = SHOWN_MAX if len(rows) == SHOWN_MAX else 0
    return Screen(request, page, part).show({"rows": rows, "words": EVENT_WORDS, "most": most})


@needs("view")
@require_safe
@needs_migration(DELIVERY)
def detail(request: HttpRequest, rule_id: str) -> HttpResponse:
    """One rule: when it last spoke about each account, every version's act."""
    row = _row_or_404(rule_id)
    acts = acts_on(f"alert_rule:{row.id}", count=ACTS_SHOWN)
    page, part = "console/alert_rules/detail.html", "console/_versions.html"
    return Screen(request, page, part).show(
        {
            "row": row,
            "rule": rule_row(row),
            "event": EVENT_WORDS.get(row.event_prefix, row.event_prefix),
            "windows": alerts.windows_of(rule_id=row.id),
            "now": clock.now(),
            "acts": [
                {"row": act, "text": act_text(act.action), "changes": changes_of(act)}
                for act in acts
            ],
        }
    )


@needs("configure")
@needs_migration(DELIVERY)
def create(request: HttpRequest) -> HttpResponse:
    """A new rule."""
    page = FormPage(
        title=_("New alert rule"),
        submit=_("Add the rule"),
        back=reverse("alert-rules"),
        crumb=_("Alert rules"),
        lead=_("When such an event happens to any account, the destination is told."),
    )
    initial = {"cooldown_seconds": AlertRule._meta.get_field("cooldown_seconds").default}

    def act(data: dict[str, Any]) -> Done:
        row = at_field(lambda: alerts.create_rule(actor=actor_of(request), **data))
        return Done(reverse("alert-rule", args=[row.id]), _("Rule %(id)s added.") % {"id": row.id})

    return run_form(request, page, NewRuleForm(request.POST or None, initial=initial), act)


@needs("configure")
@needs_migration(DELIVERY)
def change(request: HttpRequest, rule_id: str) -> HttpResponse:
    """Change a rule; also switches it on and off."""
    row = _row_or_404(rule_id)
    page = FormPage(
        title=_("Change alert rule %(id)s") % {"id": row.id},
        submit=_("Save the changes"),
        back=reverse("alert-rule", args=[row.id]),
        crumb=row.id,
        subject=f"alert_rule:{row.id}",
    )
    initial = {name: getattr(row, name) for name in alerts.FIELDS}

    def act(data: dict[str, Any]) -> Done:
        if version_of(_row_or_404(row.id).updated_at) != form_version(request):
            raise LostRace(_("The rule was changed meanwhile."))
        actor = actor_of(request)
        at_field(lambda: alerts.change_rule(rule_id=row.id, actor=actor, **data))
        return Done(page.back, _("Saved."))

    form = ChangeRuleForm(request.POST or None, initial=initial)
    return run_form(request, page, form, act, version=version_of(row.updated_at))


def _row_or_404(rule_id: str) -> AlertRule:
    if not is_id(rule_id):
        raise Http404
    try:
        row: AlertRule = alerts.get_rule(rule_id=rule_id)
    except NotFound:
        raise Http404 from None
    return row
