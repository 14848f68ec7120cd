"""What a poll answers: that something changed, in one line with a link; rows never move.

    <div data-poll="10" hx-get="?poll=1&seen=..." hx-trigger="poll"></div>

`seen` is the newest moment the page shows, in microseconds. 204 leaves the page as it is.
"""

import re
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console.acting import moment_of
from console.filters import BadFilter
from console.paging import CappedCount
from kernel.models import Request


def seen_moment(request: HttpRequest) -> Any:
    """The moment a page has seen. BadFilter (400) when it is none."""
    text = request.GET.get("seen", "")
    if not re.fullmatch(r"[0-9]{1,16}", text):
        raise BadFilter("seen", text, "microseconds since 1970")
    return moment_of(int(text))


def news(
    request: HttpRequest,
    *,
    href: str,
    changed: CappedCount | None = None,
    unknown: int = 0,
    waiting: int = 0,
    row: Request | None = None,
) -> HttpResponse:
    """One line: what changed, how much more is unknown or waits; or the state of one request."""
    if row is None and not (unknown or waiting) and (changed is None or not changed.value):
        return HttpResponse(status=204)
    context = {"changed": changed, "unknown": unknown, "row": row, "href": href}
    context["waiting"] = waiting
    return render(request, "console/_news.html", context)
