"""Probes: /livez, /readyz, /metrics (J1)."""

import asyncio
import ipaddress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from kernel import clock, schema
from kernel.api.door import kernel_of
from kernel.api.errors import render_error
from kernel.conf import conf
from kernel.errors import KernelError, Unauthorized
from kernel.kernel import Kernel
from kernel.metrics import may_scrape
from kernel.runtime.maintenance import seconds_since_a_pass
from kernel.schema import SchemaState

FORWARDED = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP", "Forwarded", "Via")


async def livez(request: HttpRequest) -> HttpResponse:
    """200 while the process answers; touches nothing."""
    return JsonResponse({"status": "alive"})


@dataclass(frozen=True, slots=True)
class Look:
    """What the database said: its schema (None = no answer), seconds since any pass."""

    schema: SchemaState | None
    pass_seconds: float | None = None


_looks: WeakKeyDictionary[Kernel, tuple[float, asyncio.Task[Look]]] = WeakKeyDictionary()


async def _look(kernel: Kernel) -> Look:
    """The last look, or a new one after `readiness_cache_seconds`.

    Anybody may ask, without a token; so the database is asked once for all who ask at once.
    """
    now = clock.monotonic()
    asked, last = _looks.get(kernel, (now, None))
    if last is None or (last.done() and now >= asked + conf.readiness_cache_seconds):
        last = asyncio.get_running_loop().create_task(_ask(kernel))
        _looks[kernel] = (now, last)
    return await asyncio.shield(last)  # who leaves takes the look from nobody


async def _ask(kernel: Kernel) -> Look:
    try:
        found = await kernel.database.in_tx(schema.state)
        age = await kernel.database.in_tx(seconds_since_a_pass) if found.usable else None
    except (KernelError, OSError, *schema.DATABASE_ERRORS):
        return Look(None)
    return Look(found, age)


async def readyz(request: HttpRequest) -> HttpResponse:
    """200 when the database answers and the schema can be used; else 503 (H2).

    Either says which migrations are missing; without 0066 or 0067 the rest works (H3). A table or a
    column that somebody took away is `gone`, and nothing is ready without it. Ready also
    says which engine runs the work, and how long ago any process last ran maintenance. What the
    database says is at most `readiness_cache_seconds` old.
    """
    kernel = kernel_of(request)
    usable = False
    problems: dict[str, object] = {}
    work: dict[str, object] = {"engine": settings.ENGINE.name}
    if not kernel.background.accepting:
        problems["closing"] = True
    else:
        look = await _look(kernel)
        found, age = look.schema, look.pass_seconds
        if found is None:
            problems["database"] = "does not answer"
        else:
            usable = found.usable
            if usable:
                work["last_pass_seconds"] = None if age is None else round(age, 1)
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
