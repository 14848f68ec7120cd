"""Probes: /livez, /readyz, /metrics (J1)."""

import ipaddress

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from kernel import schema
from kernel.api.door import kernel_of
from kernel.api.errors import render_error
from kernel.errors import KernelError, Unauthorized
from kernel.metrics import may_scrape
from kernel.runtime.maintenance import seconds_since_a_pass

FORWARDED = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP", "Forwarded", "Via")


async def livez(request: HttpRequest) -> HttpResponse:
    """200 while the process answers; touches nothing."""
    return JsonResponse({"status": "alive"})


async def readyz(request: HttpRequest) -> HttpResponse:
    """200 when the database answers and the schema can be used; else 503 (H2).

    Either says which migrations are missing; without 0066 or 0067 the rest works (H3). A table or a
    column that somebody took away is `gone`, and nothing is ready without it. Ready also
    says which engine runs the work, and how long ago any process last ran maintenance.
    """
    kernel = kernel_of(request)
    usable = False
    problems: dict[str, object] = {}
    work: dict[str, object] = {"engine": settings.ENGINE.name}
    if not kernel.background.accepting:
        problems["closing"] = True
    else:
        try:
            found = await kernel.database.in_tx(schema.state)
            if found.usable:
                age = await kernel.database.in_tx(seconds_since_a_pass)
                work["last_pass_seconds"] = None if age is None else round(age, 1)
        except (KernelError, OSError, *schema.DATABASE_ERRORS):
            problems["database"] = "does not answer"
        else:
            usable = found.usable
            if not found.ready:
                problems["schema"] = {
                    "missing": list(found.missing),
                    "unknown": list(found.unknown),
                    "changed": list(found.changed),
                    "gone": list(found.gone),
                    "next_action": found.way_out,
                }
    if problems and not usable:
        return JsonResponse({"status": "not ready", **problems}, status=503)
    return JsonResponse({"status": "ready", **work, **problems})


async def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text, from memory only. For loopback callers, or with BAILING_API_TOKEN (J1)."""
    if not (_is_loopback(request) or _has_token(request)):
        return render_error(request, Unauthorized("Metrics need a token."))
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)


def _is_loopback(request: HttpRequest) -> bool:
    # Behind a proxy on this host every peer is loopback: one that is announced, or that says so in
    # its headers, needs the token. A silent proxy must be announced by BAILING_TRUSTED_PROXIES.
    announced = settings.TRUSTED_PROXIES or settings.BEHIND_TLS
    if announced or any(name in request.headers for name in FORWARDED):
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


def _has_token(request: HttpRequest) -> bool:
    return may_scrape(request.headers.get("Authorization", ""))
