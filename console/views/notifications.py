"""Notifications: the list, and one with its attempts, its bytes and where it leads (F1, F2)."""

from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_safe

from console.access import needs
from console.acting import version_of
from console.filters import read_filters
from console.middleware import is_poll
from console.migrated import needs_migration
from console.paging import Cursor
from console.queries.destinations import closed_among, destination_row
from console.queries.home import OVERDUE_SECONDS
from console.queries.notifications import (
    FILTERS,
    KINDS,
    changed_since,
    dead_letter_of,
    notification_page,
)
from console.queries.retention import removed
from console.responses import Screen
from console.views.delivery_parts import (
    LIVE,
    content_view,
    download,
    duplicates_text,
    notification_steps,
    notification_version,
)
from console.views.news import seen_moment
from kernel import clock
from kernel.delivery.lookup import attempts_of, get_notification, message_id_of
from kernel.errors import NotFound
from kernel.ids import is_id
from kernel.models import Destination, Job, Notification
from kernel.schema import DELIVERY
from kernel.states import NotificationState


@needs("view")
@require_GET
@needs_migration(DELIVERY)
def index(request: HttpRequest) -> HttpResponse:
    """One page. Constant queries. A poll asks only how many changed."""
    chosen = read_filters(request.GET, FILTERS)
    if is_poll(request):
        return _news(request)
    cursor = Cursor.read(request.GET)
    found = notification_page(chosen, cursor)
    now = clock.now()
    newest = max((row.updated_at for row in found.rows), default=now)
    seen = chosen.query(poll="1", seen=str(version_of(newest)))
    late = now - timedelta(seconds=OVERDUE_SECONDS)
    shut = closed_among(row.destination_id for row in found.rows)
    page, part = "console/notifications/index.html", "console/notifications/_list.html"
    return Screen(request, page, part).show(
        {
            "rows": [
                {
                    "row": row,
                    # One whose destination is closed waits as it should.
                    "is_overdue": row.state == NotificationState.QUEUED
                    and row.due_at < late
                    and row.destination_id not in shut,
                }
                for row in found.rows
            ],
            "page": found.page,
            "chosen": chosen,
            "is_later": cursor is not None,
            "news_address": seen if cursor is None else "",
        }
    )


def _news(request: HttpRequest) -> HttpResponse:
    chosen = read_filters(request.GET, FILTERS)
    came = changed_since(chosen, seen_moment(request))
    if not came.value:
        return HttpResponse(status=204)
    text = ngettext("%(n)s notification changed", "%(n)s notifications changed", came.value)
    context = {"text": text % {"n": came}, "href": chosen.query() or request.path}
    return render(request, "console/_came.html", context)


@needs("view")
@require_safe
@needs_migration(DELIVERY)
def detail(request: HttpRequest, notification_id: str) -> HttpResponse:
    """One notification. A poll answers 204 while it has not moved."""
    row = _row_or_404(notification_id)
    version = notification_version(row)
    if is_poll(request) and request.GET.get("seen") == version:
        return HttpResponse(status=204)
    page, part = "console/notifications/detail.html", "console/notifications/_attempts.html"
    return Screen(request, page, part).show(_context(row) | {"version": version})


def _context(row: Notification) -> dict[str, Any]:
    now = clock.now()
    destination = Destination.objects.filter(id=row.destination_id).first()
    late = row.due_at < now - timedelta(seconds=OVERDUE_SECONDS)
    is_job = bool(row.job_id) and Job.objects.filter(id=row.job_id).exists()
    return {
        "row": row,
        "message_id": message_id_of(notification_id=row.id, replay_of_id=row.replay_of_id),
        "kind": dict(KINDS).get(row.kind, row.kind),
        "is_live": row.state in LIVE,
        "is_overdue": row.state == NotificationState.QUEUED and late,
        "steps": notification_steps(row, attempts_of(notification_id=row.id), now=now),
        "removed": removed("attempts", row.id) if row.finished_at else None,
        "duplicates": duplicates_text(row.unknown_attempts),
        "body": content_view(row.content, row.content_type),
        "at": destination_row(destination, now=now) if destination else None,
        "letter": dead_letter_of(row),
        "is_job": is_job,
    }


@needs("view")
@require_GET
@needs_migration(DELIVERY)
def content(request: HttpRequest, notification_id: str) -> HttpResponse:
    """The exact bytes that each attempt sends, as a download."""
    row = _row_or_404(notification_id)
    return download(row.content, name=row.id)


def _row_or_404(notification_id: str) -> Notification:
    if not is_id(notification_id, chars_max=64):
        raise Http404
    try:
        row: Notification = get_notification(notification_id=notification_id)
    except NotFound:
        raise Http404 from None
    return row
