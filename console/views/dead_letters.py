"""Dead letters: groups by error, the list, one with its lineage; replay, archive, restore (F)."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_GET, require_safe

from console.access import needs
from console.acting import actor_of, refused, version_of
from console.filters import read_filters
from console.forms import ConsoleForm, NoteField
from console.middleware import is_poll
from console.migrated import needs_migration
from console.paging import Cursor
from console.queries.dead_letters import (
    FILTERS,
    came_since,
    group_page,
    letter_page,
)
from console.queries.retention import removed
from console.responses import Screen
from console.views.delivery_parts import download
from console.views.form_page import Done, FormPage, run_form
from console.views.letter_page import has_moved, letter_context, letter_or_404
from console.views.news import seen_moment
from console.waking import store_of
from kernel import clock
from kernel.delivery import admissions, dead_letters
from kernel.delivery.replay import replay as replay_once
from kernel.errors import Conflict, KernelError
from kernel.models import DeadLetter
from kernel.schema import DELIVERY, LETTER_LISTS, REPLAY
from kernel.states import DeadLetterState

PAGE, PART = "console/dead_letters/detail.html", "console/dead_letters/_lineage.html"
REPLAY_PAGE, REPLAY_PART = "console/dead_letters/replay.html", "console/dead_letters/_replay.html"


class ReasonForm(ConsoleForm):
    """An act that needs a reason, kept as one line."""

    reason = NoteField(label=gettext_lazy("Reason"))

    def clean_reason(self) -> str:
        """The kernel keeps one line."""
        return " ".join(str(self.cleaned_data["reason"]).split())


class ReplayForm(ReasonForm):
    """A replay's reason may be left out."""

    reason = NoteField(label=gettext_lazy("Reason"), required=False)


@needs("view")
@require_GET
@needs_migration(REPLAY, DELIVERY, LETTER_LISTS)
def groups(request: HttpRequest, tab: str = "groups") -> HttpResponse:
    """Dead letters by what went wrong, latest seen first. Constant queries."""
    chosen = read_filters(request.GET, ())
    cursor = Cursor.read(request.GET)
    found = group_page(cursor, only_open=tab == "groups")
    page, part = "console/dead_letters/index.html", "console/dead_letters/_groups.html"
    return Screen(request, page, part).show(
        {
            "tab": tab,
            "groups": found.rows,
            "page": found.page,
            "chosen": chosen,
            "is_later": cursor is not None,
        }
    )


@needs("view")
@require_GET
@needs_migration(REPLAY, DELIVERY, LETTER_LISTS)
def letters(request: HttpRequest) -> HttpResponse:
    """The plain list. Constant queries. A poll asks only how many came."""
    chosen = read_filters(request.GET, FILTERS)
    if is_poll(request):
        return _news(request)
    cursor = Cursor.read(request.GET)
    found = letter_page(chosen, cursor)
    newest = found.rows[0].created_at if found.rows else clock.now()
    seen = chosen.query(poll="1", seen=str(version_of(newest)))
    page, part = "console/dead_letters/index.html", "console/dead_letters/_list.html"
    return Screen(request, page, part).show(
        {
            "tab": "list",
            # a plan needs more than a state, and works on open ones
            "can_plan": chosen.values.get("state", DeadLetterState.OPEN) == DeadLetterState.OPEN
            and bool(chosen.values.keys() - {"state"}),
            "rows": found.rows,
            "page": found.page,
            "chosen": chosen,
            "is_later": cursor is not None,
            "news_address": seen if cursor is None else "",
        }
    )


def _news(request: HttpRequest) -> HttpResponse:
    chosen = read_filters(request.GET, FILTERS)
    came = came_since(chosen, seen_moment(request))
    if not came.value:
        return HttpResponse(status=204)
    text = ngettext("%(n)s new dead letter", "%(n)s new dead letters", came.value) % {"n": came}
    return render(
        request, "console/_came.html", {"text": text, "href": chosen.query() or request.path}
    )


@needs("view")
@require_safe
@needs_migration(REPLAY, DELIVERY)
def detail(request: HttpRequest, dead_letter_id: str) -> HttpResponse:
    """One dead letter. A poll answers 204 while its replay's notification has not moved."""
    if is_poll(request) and not has_moved(dead_letter_id, seen=request.GET.get("seen", "")):
        return HttpResponse(status=204)
    return Screen(request, PAGE, PART).show(letter_context(letter_or_404(dead_letter_id)))


@needs("view")
@require_GET
@needs_migration(REPLAY, DELIVERY)
def content(request: HttpRequest, dead_letter_id: str) -> HttpResponse:
    """The exact bytes that could not be delivered, as a download; 410 after their retention."""
    kept = letter_or_404(dead_letter_id)
    if removed("dead_letters", kept.letter.id):
        return Screen(request, PAGE, PART).show(letter_context(kept), status=410)
    return download(kept.letter.content, name=kept.letter.id)


@needs("operate")
@needs_migration(REPLAY, DELIVERY)
def replay(request: HttpRequest, dead_letter_id: str) -> HttpResponse:
    """The confirmation and the act: GET never replays, POST admits at most once (F5)."""
    kept = letter_or_404(dead_letter_id)
    row = kept.letter
    screen = Screen(request, REPLAY_PAGE, REPLAY_PART)
    form = ReplayForm(request.POST if request.method == "POST" else None)
    if request.method != "POST":
        return screen.show(letter_context(kept) | {"form": form})
    if not form.is_valid():
        return screen.invalid(letter_context(kept) | {"form": form})
    back = reverse("dead-letter", args=[row.id])
    try:
        done = _replay(request, row, form.cleaned_data["reason"])
    except KernelError as error:
        context = letter_context(letter_or_404(row.id)) | {"form": form}
        return refused(
            request, screen, error, context, form=form, back=back, subject=f"dead_letter:{row.id}"
        )
    if done.state != admissions.QUEUED:
        messages.info(request, _told(done))
        return screen.done(to=back)
    return screen.done(to=back, message=_told(done))


def _replay(request: HttpRequest, row: DeadLetter, reason: str) -> admissions.Replayed:
    done = replay_once(
        dead_letter_id=row.id, actor=actor_of(request), store=store_of(request), reason=reason
    )
    if not done.admitted:
        raise Conflict(
            _("Its own notification is still being sent; nothing was queued."),
            code=admissions.STILL,
            next_action=_("Look at the notification; replay again when it has failed for good."),
            notification=done.notification_id,
        )
    return done


def _told(done: admissions.Replayed) -> str:
    if done.state == admissions.QUEUED:
        return _("Queued once more. That is no receipt yet: see its notification below.")
    if done.state == admissions.STILL:
        return _("It was queued before and is being sent just now; nothing was added.")
    return _("It was queued before; nothing was added.")


@needs("operate")
@needs_migration(REPLAY, DELIVERY)
def archive(request: HttpRequest, dead_letter_id: str) -> HttpResponse:
    """Set one aside with a reason (F9)."""
    row = letter_or_404(dead_letter_id).letter
    page = _act_page(
        row,
        title=_("Archive this dead letter?"),
        submit=_("Archive it"),
        lead=_("It is kept whole, and no replay sends it until somebody restores it."),
    )

    def act(data: dict[str, Any]) -> Done:
        dead_letters.archive(dead_letter_id=row.id, actor=actor_of(request), reason=data["reason"])
        return Done(page.back, _("Archived."))

    return run_form(request, page, ReasonForm(request.POST or None), act)


@needs("operate")
@needs_migration(REPLAY, DELIVERY)
def restore(request: HttpRequest, dead_letter_id: str) -> HttpResponse:
    """Take an archived one back, with a reason (F9)."""
    row = letter_or_404(dead_letter_id).letter
    page = _act_page(
        row,
        title=_("Restore this dead letter?"),
        submit=_("Restore it"),
        lead=_("It is open again and can be replayed. Nothing is sent by this."),
    )

    def act(data: dict[str, Any]) -> Done:
        dead_letters.restore(dead_letter_id=row.id, actor=actor_of(request), reason=data["reason"])
        return Done(page.back, _("Open again."))

    return run_form(request, page, ReasonForm(request.POST or None), act)


def _act_page(row: DeadLetter, *, title: str, submit: str, lead: str) -> FormPage:
    return FormPage(
        title=title,
        submit=submit,
        back=reverse("dead-letter", args=[row.id]),
        crumb=row.id,
        permission="operate",
        lead=lead,
        subject=f"dead_letter:{row.id}",
        facts=[
            (_("Dead letter"), row.id),
            (_("Event"), row.event or row.channel),
            (_("Notification"), row.notification_id),
            (_("State"), row.state),
        ],
    )
