"""From a console request to the kernel: who acts, effects on the kernel's loop, refused acts.

A rendered form acts at most once: its key goes into the audit row, which is unique. A refused act
is answered with who did what and when instead; the typed note stays in the form.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.contrib import messages
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from console.formats import ago_text
from console.places import page_of
from console.queries.audit import act_of_form, acts_on
from console.responses import FORM_KEY, Screen, form_key
from console.words import act_text, changes_of
from kernel import clock
from kernel.audit import Actor
from kernel.errors import Conflict, InvalidInput, KernelError, NotFound, Unavailable
from kernel.kernel import Kernel
from kernel.models import AuditRow

R = TypeVar("R")
EFFECT_SECONDS = 20


def actor_of(request: HttpRequest) -> Actor:
    """The signed-in person, this HTTP request and, for a form, its key (one act per form)."""
    key = form_key(request) if request.method == "POST" else ""
    return replace(person_of(request), act_key=key)


def person_of(request: HttpRequest) -> Actor:
    """The signed-in person and this HTTP request, with its address; of no form."""
    return Actor(
        "user",
        request.user.get_username(),
        request_id=getattr(request, "request_id", ""),
        address=str(request.META.get("REMOTE_ADDR", "")),
    )


def refused(
    request: HttpRequest,
    screen: Screen,
    error: KernelError,
    context: dict[str, Any],
    *,
    form: Form,
    back: str,
    subject: str = "",
    repeat: str = "",
) -> HttpResponse:
    """The answer to an act that the kernel refused with `error`.

    When this very form was carried out after all, or before (a double click): 303, see
    `told_again`. Else the error's status: at the field it names, or as a problem with who acted on
    `subject` and when. When it is not certain whether the act happened, the form keeps its key.
    """
    error.message = _sentence(error.message)
    key = form_key(request)
    earlier = act_of_form(key) if isinstance(error, Conflict | Unavailable) else None
    if earlier is not None and earlier.reason == note_of(form):
        return told_again(request, screen, earlier, back=back, repeat=repeat)
    if isinstance(error, Conflict):
        _name_who_was_first(error, earlier, subject)
    if isinstance(error, Unavailable):
        context = context | {"repeat_key": key}
    field = error.details.get("field")
    if field in form.fields:
        form.add_error(field, " ".join(filter(None, (error.message, error.way_out))))
        status = 422 if isinstance(error, InvalidInput | NotFound) else error.status
        return screen.show(context, status=status)
    return screen.problem(error, context)


def told_again(
    request: HttpRequest, screen: Screen, earlier: AuditRow, *, back: str, repeat: str = ""
) -> HttpResponse:
    """303 to the page of what the form's one act was about, else to `back`; says when it was.

    `repeat` is what a person must know besides: a secret was in the first answer only.
    """
    ago = ago_text(earlier.at, now=clock.now())
    text = _("This form was carried out once, %(ago)s; nothing was done again.") % {"ago": ago}
    level = messages.WARNING if repeat else messages.INFO
    messages.add_message(request, level, f"{text} {repeat}".strip())
    return screen.done(to=page_of(earlier.subject) or back)


def earlier_act(request: HttpRequest) -> AuditRow | None:
    """The act that this very form led to before, for views that cannot repeat their checks."""
    key = request.POST.get("form_key", "")
    return act_of_form(key) if FORM_KEY.match(key) else None


def note_of(form: Form) -> str:
    """What the person typed as their reason; the audit row keeps it."""
    data = form.cleaned_data
    return str(data.get("note") or data.get("reason") or "")


def _sentence(text: str) -> str:
    text = text.rstrip(". ")
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('?', '!', '…')) else '.'}"


def _name_who_was_first(error: Conflict, earlier: AuditRow | None, subject: str) -> None:
    """Adds by, did, at and what changed to the facts of the answer."""
    row = earlier or next(iter(acts_on(subject, count=1)), None)
    error.details.pop("updated_at", None)
    if row is None:
        return
    error.details |= {"by": row.actor_id, "did": act_text(row.action), "at": row.at}
    if error.details.get("result_state") is None:
        changed = [
            f"{one.name}: {one.before} → {one.after}" if one.before else f"{one.name}: {one.after}"
            for one in changes_of(row)
        ]
        if changed:
            error.details["changed"] = "; ".join(changed)


def kernel_of(request: HttpRequest) -> Kernel:
    """The kernel of this process. Unavailable in a process that runs none."""
    kernel = getattr(request, "scope", {}).get("kernel")
    if kernel is None:
        raise Unavailable(
            "This process runs no kernel.", next_action="Use a console served by console.asgi."
        )
    return kernel


def on_kernel_loop(request: HttpRequest, effect: Callable[[Kernel], Coroutine[Any, Any, R]]) -> R:
    """Run `effect(kernel)` on the kernel's event loop and wait for it, from a console thread."""
    kernel = kernel_of(request)
    if kernel.loop is None:
        raise Unavailable("The kernel has not started yet.")
    future = asyncio.run_coroutine_threadsafe(effect(kernel), kernel.loop)
    try:
        return future.result(timeout=EFFECT_SECONDS)
    except FutureTimeout:
        raise Unavailable(
            "The kernel takes long to answer; what was started goes on.",
            next_action="Reload the page to see where it stands.",
        ) from None


def version_of(moment: datetime) -> int:
    """A row's `updated_at` as the version a form carries: microseconds since 1970."""
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def moment_of(version: int) -> datetime:
    """The inverse of version_of."""
    seconds, micros = divmod(version, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
