"""One page for every form that creates, changes or confirms: shown, checked, acted on, answered."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.functional import Promise

from console.forms import ConsoleForm
from console.responses import Screen
from kernel.errors import InvalidInput, KernelError

Text = str | Promise


@dataclass(frozen=True, slots=True)
class FormPage:
    """The words around a form. `back` is where it came from; `crumb` names that place."""

    title: Text
    submit: Text
    back: str
    crumb: Text
    lead: Text = ""
    kind: str = "primary"  # or danger
    permission: str = "configure"
    facts: list[tuple[Text, Any]] = field(default_factory=list)


def run_form(
    request: HttpRequest,
    page: FormPage,
    form: ConsoleForm,
    act: Callable[[dict[str, Any]], tuple[str, str]],
    *,
    version: int | None = None,
) -> HttpResponse:
    """GET shows; POST calls `act(cleaned_data)` -> (where to go, message). Errors stay on the page.

    An InvalidInput of the kernel is shown at the field it names.
    """
    screen = Screen(request, "console/form.html", "console/_form.html")
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
        to, message = act(form.cleaned_data)
    except InvalidInput as error:
        name = error.field if error.field in form.fields else None
        form.add_error(name, f"{error.message} {error.way_out}".strip())
        return screen.invalid(context)
    except KernelError as error:
        return screen.problem(error, context)
    return screen.done(to=to, message=message)
