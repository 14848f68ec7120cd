"""Tools: what jobs and agents may call, where it goes, and when a person is asked (D4)."""

import json
from collections.abc import Callable
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_safe

from console.access import needs
from console.acting import actor_of
from console.bodies import body_view
from console.forms import ConsoleForm, IdTextField, NoteField
from console.migrated import needs_migration
from console.queries.audit import acts_on
from console.responses import Screen, form_version
from console.views.call_parts import target_of
from console.views.form_page import Done, FormPage, run_form
from console.words import act_text, changes_of
from kernel.errors import InvalidInput, NotFound
from kernel.ids import is_id
from kernel.jobs import registry
from kernel.models import Tool
from kernel.schema import AGENT_JOBS

ACTS_SHOWN = 50
METHODS = ("POST", "PUT", "PATCH", "DELETE", "GET")
SCHEMA_EXAMPLE = """{
  "type": "object",
  "properties": {
    "order_id": {"type": "string", "maxLength": 40},
    "amount": {"type": "number", "minimum": 0}
  },
  "required": ["order_id", "amount"],
  "additionalProperties": false
}"""
POLICY_EXAMPLE = """{
  "default": "approval",
  "risk": "medium",
  "rules": [
    {
      "when": {"argument": "amount", "is": "number", "op": "<=", "value": 20},
      "then": "auto"
    },
    {
      "when": {"argument": "amount", "is": "number", "op": ">", "value": 500},
      "then": "approval",
      "risk": "high"
    }
  ]
}"""


def _area(rows: int) -> forms.Textarea:
    attrs = {"rows": rows, "class": "input mono", "spellcheck": "false", "data-keep": ""}
    return forms.Textarea(attrs=attrs)


class ToolForm(ConsoleForm):
    """A tool. The kernel checks what is written; its errors come back at the field."""

    description = forms.CharField(
        label=gettext_lazy("Description"),
        max_length=registry.DESCRIPTION_CHARS_MAX,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "input"}),
        help_text=gettext_lazy("What the model reads."),
    )
    method = forms.ChoiceField(
        label=gettext_lazy("Method"), choices=[(one, one) for one in METHODS]
    )
    url = forms.CharField(
        label=gettext_lazy("Address"),
        max_length=registry.URL_CHARS_MAX,
        help_text=gettext_lazy(
            "For example https://shop.example/orders/{order_id}/refunds. {name} takes an argument;"
            " never in the host."
        ),
    )
    parameters = forms.CharField(
        label=gettext_lazy("Arguments (JSON Schema)"), widget=_area(10), strip=False
    )
    policy = forms.CharField(
        label=gettext_lazy("Policy"),
        widget=_area(16),
        strip=False,
        help_text=gettext_lazy(
            "auto, approval or forbidden. The first rule that fits decides; a value of another"
            " type is refused."
        ),
    )
    effect = forms.CharField(
        label=gettext_lazy("Effect in words"),
        max_length=registry.EFFECT_CHARS_MAX,
        required=False,
        help_text=gettext_lazy(
            "The sentence an approver reads first: Refund {amount} EUR on order {order_id}."
        ),
    )
    side_effect = forms.BooleanField(
        label=gettext_lazy("It changes something outside: never sent twice"), required=False
    )
    idempotency_header = forms.CharField(
        label=gettext_lazy("Key header"), max_length=registry.HEADER_CHARS_MAX
    )
    secret_env = forms.CharField(
        label=gettext_lazy("Secret variable"),
        max_length=120,
        required=False,
        help_text=gettext_lazy("Name of an environment variable, never the secret itself."),
    )
    secret_header = forms.CharField(
        label=gettext_lazy("Secret header"), max_length=registry.HEADER_CHARS_MAX
    )
    deadline_seconds = forms.IntegerField(
        label=gettext_lazy("Deadline in seconds"),
        min_value=1,
        max_value=registry.DEADLINE_SECONDS_MAX,
    )
    body_bytes_max = forms.IntegerField(
        label=gettext_lazy("Largest answer in bytes"),
        required=False,
        min_value=1,
        help_text=gettext_lazy("Empty: the default of the installation."),
    )
    calls_per_minute_max = forms.IntegerField(
        label=gettext_lazy("Calls per minute"),
        required=False,
        min_value=1,
        help_text=gettext_lazy("Empty: no limit."),
    )
    allow_private = forms.BooleanField(
        label=gettext_lazy("Allow a loopback or private address"), required=False
    )


class NewToolForm(ToolForm):
    """A new tool: its id is what the model calls."""

    tool_id = IdTextField(
        label=gettext_lazy("Id"), help_text=gettext_lazy("What the model calls it. Never changes.")
    )
    field_order = ("tool_id",)


class ChangeToolForm(ToolForm):
    """A tool's next version; open or retired."""

    active = forms.BooleanField(label=gettext_lazy("Open for calls"), required=False)
    reason = NoteField(label=gettext_lazy("Reason"), required=False)


@needs("view")
@require_GET
@needs_migration(AGENT_JOBS)
def index(request: HttpRequest) -> HttpResponse:
    """All tools by id."""
    rows = [{"row": row, "default": _default_of(row)} for row in registry.list_tools()]
    return Screen(request, "console/tools/index.html", "console/tools/_list.html").show(
        {"rows": rows}
    )


@needs("view")
@require_safe
@needs_migration(AGENT_JOBS)
def detail(request: HttpRequest, tool_id: str) -> HttpResponse:
    """One tool: where it goes, its arguments, its policy, and every version's act."""
    row = _tool_or_404(tool_id)
    acts = acts_on(f"tool:{row.id}", count=ACTS_SHOWN)
    return Screen(request, "console/tools/detail.html", "console/_acts.html").show(
        {
            "row": row,
            "target": target_of(row),
            "default": _default_of(row),
            "parameters": _json_view(row.parameters_text),
            "policy": _json_view(row.policy_text),
            "acts": [
                {"row": act, "text": act_text(act.action), "changes": changes_of(act)}
                for act in acts
            ],
        }
    )


@needs("configure")
@needs_migration(AGENT_JOBS)
def create(request: HttpRequest) -> HttpResponse:
    """A new tool."""
    page = FormPage(
        title=_("New tool"),
        submit=_("Add the tool"),
        back=reverse("tools"),
        crumb=_("Tools"),
        lead=_("A tool is one HTTP call that jobs and agents may ask for."),
    )
    initial = {
        "method": "POST",
        "side_effect": True,
        "idempotency_header": "Idempotency-Key",
        "secret_header": "Authorization",
        "deadline_seconds": 30,
        "parameters": SCHEMA_EXAMPLE,
        "policy": POLICY_EXAMPLE,
    }

    def act(data: dict[str, Any]) -> Done:
        row = at_field(lambda: registry.create_tool(actor=actor_of(request), **data))
        return Done(reverse("tool", args=[row.id]), _("Tool %(id)s added.") % {"id": row.id})

    return run_form(request, page, NewToolForm(request.POST or None, initial=initial), act)


@needs("configure")
@needs_migration(AGENT_JOBS)
def change(request: HttpRequest, tool_id: str) -> HttpResponse:
    """A tool's next version. What was asked for the old one is asked again."""
    row = _tool_or_404(tool_id)
    page = FormPage(
        title=_("Change tool %(id)s") % {"id": row.id},
        submit=_("Save as the next version"),
        back=reverse("tool", args=[row.id]),
        crumb=row.id,
        lead=_("Calls that were approved for the version before are asked again, with the change."),
        subject=f"tool:{row.id}",
    )
    initial = {
        name: getattr(row, name) for name in ChangeToolForm.base_fields if hasattr(row, name)
    }
    initial |= {
        "parameters": _pretty(row.parameters_text),
        "policy": _pretty(row.policy_text),
        "effect": row.effect_text,
    }

    def act(data: dict[str, Any]) -> Done:
        seen, actor = form_version(request), actor_of(request)
        at_field(
            lambda: registry.change_tool(tool_id=row.id, actor=actor, seen_version=seen, **data)
        )
        return Done(page.back, _("Saved."))

    form = ChangeToolForm(request.POST or None, initial=initial)
    return run_form(request, page, form, act, version=row.version)


def at_field(verb: Callable[[], Any]) -> Any:
    """Run a verb; `policy.rules[0].when` is an error at the field `policy`."""
    try:
        return verb()
    except InvalidInput as error:
        name = error.field.split(".", 1)[0].split("[", 1)[0]
        if name == error.field:
            raise
        message = f"{error.field.removeprefix(name).lstrip('.')}: {error.message}"
        raise InvalidInput(message, field=name, code=error.error_code) from error


def _default_of(row: Tool) -> str:
    """What the policy says when no rule fits: auto, approval or forbidden; '' if unreadable."""
    try:
        value = json.loads(row.policy_text)
    except ValueError:
        return ""
    return str(value.get("default", "")) if isinstance(value, dict) else ""


def _json_view(text: str) -> Any:
    data = text.encode()
    return body_view(data, content_type="application/json", bytes_max=len(data))


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _tool_or_404(tool_id: str) -> Tool:
    if not is_id(tool_id):
        raise Http404
    try:
        row: Tool = registry.get_tool(tool_id=tool_id)
    except NotFound:
        raise Http404 from None
    return row
