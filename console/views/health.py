"""Health: the schema, the last checks, the processes, and "examine now"."""

import os
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from console.access import needs
from console.acting import actor_of, kernel_of, refused
from console.forms import ConsoleForm
from console.queries.passes import passes, processes
from console.responses import Screen
from kernel import doctor, schema
from kernel.checks import DOCTOR_PREFIX
from kernel.errors import KernelError
from kernel.invariants import INVARIANTS
from kernel.models import CheckReport

PAGE, PART = "console/health/index.html", "console/health/_state.html"


@needs("view")
@require_GET
def health(request: HttpRequest) -> HttpResponse:
    """The last results of db_verify and of the doctor: nothing is checked here."""
    return Screen(request, PAGE, PART).show(_context(request))


@needs("operate")
@require_POST
def examine(request: HttpRequest) -> HttpResponse:
    """Run the doctor's checks in this process, with this request's headers, and keep the result."""
    screen = Screen(request, PAGE, PART)
    back = reverse("health")
    try:
        findings = doctor.examine(environ=os.environ, headers=request.headers)
        doctor.store_findings(findings=findings, actor=actor_of(request))
    except KernelError as error:
        form = ConsoleForm(request.POST)
        form.is_valid()
        return refused(request, screen, error, _context(request), form=form, back=back)
    message = _("Examined: %(n)d checks.") % {"n": len(findings)}
    return screen.done(to=back, message=message)  # anew, so that the button has a fresh key


def _context(request: HttpRequest) -> dict[str, Any]:
    words = {each.key: each for each in INVARIANTS}
    rows = list(CheckReport.objects.exclude(name__startswith=DOCTOR_PREFIX).order_by("name"))
    checks: list[dict[str, Any]] = [
        {"report": row, "invariant": words.get(row.name)} for row in rows
    ]
    kept = doctor.last_findings()
    return {
        "schema": schema.state(),
        "broken": [each for each in checks if each["report"].offenders],
        "holding": [each for each in checks if not each["report"].offenders],
        "checked_at": min((row.checked_at for row in rows), default=None),
        "ailing": [one.finding for one in kept if one.finding.level != doctor.OK],
        "well": [one.finding for one in kept if one.finding.level == doctor.OK],
        "examined_at": min((one.at for one in kept), default=None),
        "processes": processes(passes()),
        "here": _here(request),
    }


def _here(request: HttpRequest) -> dict[str, Any] | None:
    try:
        kernel = kernel_of(request)
    except KernelError:
        return None
    return {
        "owner": kernel.owner,
        "pending": {kind: n for kind, n in kernel.background.pending().items() if n},
        "failures": dict(kernel.background.failures),
        "running": kernel.gateway.running,
        "database": kernel.database.pending,
        "drain_timeouts": kernel.drain_timeouts,
        "accepting": kernel.background.accepting,
    }
