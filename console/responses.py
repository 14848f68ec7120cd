"""One URL, two renderings, and the answers of an act. The base pattern of every screen:

    @needs("view", post="operate")
    def resolve(request, request_id):
        screen = Screen(request, page="console/requests/resolve.html",
                        part="console/requests/_resolve.html")
        form = ResolveForm(request.POST or None)
        if request.method != "POST":
            return screen.show({"form": form})
        if not form.is_valid():
            return screen.invalid({"form": form})
        try:
            usage.resolve_unknown(request_id=request_id, ..., act_key=form_key(request))
        except KernelError as error:
            return screen.problem(error, {"form": form})
        return screen.done(to=reverse("request", args=[request_id]), message=_("Resolved."))

| outcome | without JavaScript | with htmx |
|---|---|---|
| done | 303 to `to`, message there | 200 with `part`, message as a toast; or HX-Redirect to `to` |
| changed meanwhile | 409 page, typed note kept, who/what/when | 409 part, the same |
| invalid | 422 page with the errors at the fields | 422 part |
| not allowed | 403 page with the reason | 403 part with the reason |
| recorded, continuing | 503 page with Retry-After | 503 part |
| signed out | 401 page with the typed text | 401 + HX-Redirect (console/access.py) |

The part is a template that `page` includes inside a stable parent, so that focus survives.
"""

import re
import secrets
from dataclasses import dataclass, field
from typing import Any

from django.contrib import messages
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kernel.errors import Conflict, Forbidden, InvalidInput, KernelError, NotFound, Unavailable

FORM_KEY = re.compile(r"[A-Za-z0-9_-]{22}\Z")
RETRY_SECONDS = 5


def new_form_key() -> str:
    """A fresh idempotency key for one rendering of a form: 128 random bits."""
    return secrets.token_urlsafe(16)


def form_key(request: HttpRequest) -> str:
    """The idempotency key that the form carried. BadRequest (400) when it has none."""
    key = request.POST.get("form_key", "")
    if not FORM_KEY.match(key):
        raise BadRequest(_("This form carries no key. Open it again and repeat."))
    return key


def form_version(request: HttpRequest) -> int:
    """The row version that the form was rendered from. BadRequest (400) when it is no number."""
    text = request.POST.get("version", "")
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise BadRequest(_("This form carries no version. Open it again and repeat."))
    return int(text)


@dataclass(frozen=True, slots=True)
class Problem:
    """A refused act in words. Templates show it with `{% problem problem %}`."""

    kind: str  # conflict | invalid | forbidden | gone | unavailable | failed
    title: str | Promise
    text: str
    way_out: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def tone(self) -> str:
        return "danger" if self.kind in ("forbidden", "failed") else "warn"


_TITLES: tuple[tuple[type[KernelError], str, str | Promise], ...] = (
    (Conflict, "conflict", gettext_lazy("Nothing was done: this changed in the meantime")),
    (InvalidInput, "invalid", gettext_lazy("Nothing was done: a field needs another value")),
    (Forbidden, "forbidden", gettext_lazy("Not allowed")),
    (NotFound, "gone", gettext_lazy("This is no longer here")),
    (Unavailable, "unavailable", gettext_lazy("Not certain yet: repeat with the same button")),
)


def problem_of(error: KernelError) -> Problem:
    """The words for an error of the kernel; its details (who, what, when) become facts."""
    kind, title = next(
        ((kind, title) for cls, kind, title in _TITLES if isinstance(error, cls)),
        ("failed", gettext_lazy("Nothing was done")),
    )
    return Problem(kind, title, error.message, way_out=error.way_out, facts=error.details)


def wants_part(request: HttpRequest) -> bool:
    """True when htmx asks for a part; a history restore or a boosted link wants the whole page."""
    htmx = getattr(request, "htmx", None)
    if not htmx:
        return False
    return not htmx.boosted and not htmx.history_restore_request


@dataclass(frozen=True, slots=True)
class Screen:
    """A page and its part; each method renders the one that was asked for."""

    request: HttpRequest
    page: str
    part: str

    def show(self, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
        """The page, or the part with fresh messages as toasts."""
        part = wants_part(self.request)
        body = render_to_string(
            self.part if part else self.page, context | {"is_part": part}, request=self.request
        )
        if part:
            body += render_to_string("console/_toasts.html", request=self.request)
        return HttpResponse(body, status=status)

    def invalid(self, context: dict[str, Any]) -> HttpResponse:
        """422: the form with its errors at the fields."""
        return self.show(context, status=422)

    def problem(self, error: KernelError, context: dict[str, Any]) -> HttpResponse:
        """The error's own status; the context gains `problem`. Conflicts keep the typed note."""
        response = self.show(context | {"problem": problem_of(error)}, status=error.status)
        if error.retryable:
            response.headers["Retry-After"] = str(RETRY_SECONDS)
        return response

    def done(
        self, *, to: str, message: str = "", context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """303 to `to`; with htmx the part with `context`, or HX-Redirect when there is none."""
        if message:
            messages.success(self.request, message)
        if not wants_part(self.request):
            return see_other(to)
        if context is None:
            return HttpResponse(status=200, headers={"HX-Redirect": to})
        return self.show(context)


def see_other(to: str) -> HttpResponseRedirect:
    """303: the browser follows with GET and Reload does not repeat the act."""
    response = HttpResponseRedirect(to)
    response.status_code = 303
    return response
