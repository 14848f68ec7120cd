"""One page for every form that creates, changes or confirms: shown, checked, acted on, answered."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.functional import Promise

from console.acting import refused
from console.forms import ConsoleForm
from console.responses import Screen
from kernel.errors import KernelError

Text = str | Promise
PAGE, PART = "console/form.html", "console/_form.html"


@dataclass(frozen=True, slots=True)
class FormPage:
    """The words around a form. `back` is where it came from; `crumb` names that place.

    `subject` is the audit subject of what it changes: a conflict names the latest act on it.
    `repeat` is what the repeat of a form that was carried out says besides (a secret shown once).
    """

    title: Text
    submit: Text
    back: str
    crumb: Text
    lead: Text = ""
    kind: str = "primary"  # or danger
    permission: str = "configure"
    subject: str = ""
    repeat: Text = ""
    facts: list[tuple[Text, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Done:
    """An act that was carried out: where to go and what to say there."""

    to: str
    message: str


@dataclass(frozen=True, slots=True)
class Secret:
    """An act that made a secret: its name, and the secret, shown on this one answer only."""

    what: str
    name: str
    secret: str


def run_form(
    request: HttpRequest,
    page: FormPage,
    form: ConsoleForm,
    act: Callable[[dict[str, Any]], Done | Secret],
    *,
    version: int | None = None,
) -> HttpResponse:
    """GET shows; POST calls `act(cleaned_data)`. What the kernel refuses stays on the page."""
    screen = Screen(request, PAGE, PART)
    context: dict[str, Any] = {
        "form_page": page,
        "form": form,
        "version": version,
        "action": request.get_full_path(),
    }
    if request.method != "POST":
        return screen.show(context)
    if not form.is_valid():
        return screen.invalid(context)
    try:
        outcome = act(form.cleaned_data)
    except KernelError as error:
        return refused(
            request,
            screen,
            error,
            context,
            form=form,
            back=page.back,
            subject=page.subject,
            repeat=str(page.repeat),
        )
    if isinstance(outcome, Secret):
        return Screen(request, "console/secret.html", "console/_secret.html").show(
            {"form_page": page, "shown": outcome}
        )
    return screen.done(to=outcome.to, message=outcome.message)
