"""Reconciliation: the settlement pass of every process, the backlog, and "run a pass now" (B6)."""

import asyncio
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.access import needs
from console.acting import actor_of, kernel_of, on_kernel_loop, refused
from console.forms import ConsoleForm
from console.queries.home import NEWEST_PENDING_ROWS, Backlog, figures
from console.queries.passes import PassView, passes
from console.queries.retention import kept
from console.responses import Screen, wants_part
from console.views.trends import pending_chart
from console.words import code_text, pages_text, pass_name, pass_text
from kernel import clock
from kernel.conf import conf
from kernel.errors import KernelError
from kernel.kernel import Kernel
from kernel.usage.reasons import REASONS

PAGE, PART = "console/reconciliation/index.html", "console/reconciliation/_progress.html"
POLL_SECONDS, POLL_SECONDS_RUNNING = 15, 2
SHORT_WAIT_SECONDS = 2


@needs("view")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """The latest page's counters, the capped backlog and its oldest age, back-off."""
    context = _context(request)
    if not wants_part(request):
        context["waiting"] = pending_chart()
    return Screen(request, PAGE, PART).show(context)


@needs("operate")
@require_POST
def run_now(request: HttpRequest) -> HttpResponse:
    """Start a settlement pass in this process, or join the running one; waits for it briefly."""
    actor = actor_of(request)

    async def start(kernel: Kernel) -> bool:
        task = await kernel.run_pass_for("settlement", actor=actor)
        done, _running = await asyncio.wait([task], timeout=SHORT_WAIT_SECONDS)
        return bool(done)

    screen = Screen(request, PAGE, PART)
    back = reverse("reconciliation")
    try:
        done = on_kernel_loop(request, start)
    except KernelError as error:
        form = ConsoleForm(request.POST)
        form.is_valid()
        return refused(request, screen, error, _context(request), form=form, back=back)
    message = _("The pass has run.") if done else _("The pass runs; its progress is shown here.")
    return screen.done(to=back, message=message)  # anew, so that the button has a fresh key


def _context(request: HttpRequest) -> dict[str, Any]:
    found = figures(with_jobs=False)
    views = passes()
    settlement = next((view for view in views if view.row.name == "settlement"), None)
    running = settlement is not None and settlement.state == "running"
    return {
        "views": [
            {"view": view, "name": pass_name(view.row.name), "text": pass_text(view.row)}
            for view in views
        ],
        "settlement": settlement,
        "pages": pages_text(settlement.row.pages) if settlement else "",
        "extent": _extent(settlement, found.pending),
        "poll_seconds": POLL_SECONDS_RUNNING if running else POLL_SECONDS,
        "pending": found.pending,
        "unknown": found.unknown,
        "reasons": [
            {
                "code": code,
                "words": code_text(code),
                "count": count,
                "means": REASONS[code].means if code in REASONS else "",
            }
            for code, count in sorted(found.reasons.items(), key=lambda pair: -pair[1].count)
        ],
        "reasons_of": NEWEST_PENDING_ROWS,
        "here": _here(request),
        "interval": conf.settlement_interval_seconds,
        "page_rows": conf.settlement_page_rows,
        "now": clock.now(),
        "kept": kept(),
    }


def _extent(settlement: PassView | None, pending: Backlog) -> int:
    """How many rows the running pass has before it in all; 0 = not known."""
    if settlement is None or pending.capped:
        return 0
    return max(settlement.row.pass_settled + pending.count, settlement.row.pass_scanned)


def _here(request: HttpRequest) -> Any:
    try:
        return kernel_of(request).get_reconciliation_progress()
    except KernelError:
        return None
