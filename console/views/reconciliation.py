"""Reconciliation: the settlement pass of every process, the backlog, and "run a pass now" (B6)."""

import asyncio
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.access import needs
from console.acting import kernel_of, on_kernel_loop
from console.queries.home import figures
from console.queries.passes import passes
from console.responses import Screen
from console.words import pass_text
from kernel import clock
from kernel.conf import conf
from kernel.errors import KernelError
from kernel.kernel import Kernel
from kernel.usage.reasons import REASONS

PAGE, PART = "console/reconciliation/index.html", "console/reconciliation/_progress.html"


@needs("view")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """The latest page's counters, the capped backlog and its oldest age, back-off."""
    return Screen(request, PAGE, PART).show(_context(request))


@needs("operate")
@require_POST
def run_now(request: HttpRequest) -> HttpResponse:
    """Start a settlement pass in this process, or join the running one; waits for it briefly."""

    async def start(kernel: Kernel) -> bool:
        task = kernel.run_pass("settlement")
        done, _running = await asyncio.wait([task], timeout=2)
        return bool(done)

    screen = Screen(request, PAGE, PART)
    try:
        done = on_kernel_loop(request, start)
    except KernelError as error:
        return screen.problem(error, _context(request))
    message = _("The pass has run.") if done else _("The pass runs; its progress is shown here.")
    return screen.done(to=reverse("reconciliation"), message=message, context=_context(request))


def _context(request: HttpRequest) -> dict[str, Any]:
    found = figures()
    views = passes()
    settlement = next((view for view in views if view.row.name == "settlement"), None)
    return {
        "views": [{"view": view, "text": pass_text(view.row)} for view in views],
        "settlement": settlement,
        "pending": found.pending,
        "reasons": [
            {"code": code, "count": count, "means": REASONS[code].means if code in REASONS else ""}
            for code, count in sorted(found.reasons.items(), key=lambda pair: -pair[1])
        ],
        "here": _here(request),
        "interval": conf.settlement_interval_seconds,
        "page_rows": conf.settlement_page_rows,
        "now": clock.now(),
    }


def _here(request: HttpRequest) -> Any:
    try:
        return kernel_of(request).get_reconciliation_progress()
    except KernelError:
        return None
