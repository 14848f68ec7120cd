"""Around every console request: its id, the limits of its session, the time zone."""

from collections.abc import Callable
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from structlog.contextvars import bound_contextvars

from console import proofs
from console.preferences import remember_zone, zone_of
from kernel import clock
from kernel.access.sign_ins import ADDRESS, AGENT, SEEN_AT, STARTED_AT
from kernel.conf import conf
from kernel.ids import new_id

Next = Callable[[HttpRequest], HttpResponseBase]

TOUCH_SECONDS_MAX = 60  # a navigation writes the session at most this often
AGENT_CHARS_MAX = 300


class RequestIdMiddleware:
    """Gives each request an id; audit rows, logs and error pages name it."""

    def __init__(self, get_response: Next):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        request.request_id = new_id("web")  # type: ignore[attr-defined]  # ours, read by views
        with bound_contextvars(request_id=request.request_id):  # type: ignore[attr-defined]  # ours
            response = self.get_response(request)
        response.headers["X-Request-Id"] = request.request_id  # type: ignore[attr-defined]  # ours
        return response


def is_poll(request: HttpRequest) -> bool:
    """True for a request that a page sent by itself: header `HX-Polling`, or `?poll=1`."""
    return "HX-Polling" in request.headers or request.GET.get("poll") == "1"


def begin_session(request: HttpRequest) -> None:
    """Note in a new session since when it lasts and from where, for both limits and the list."""
    proofs.begin(request)
    now = int(clock.now().timestamp())
    request.session[STARTED_AT] = request.session[SEEN_AT] = now
    request.session[ADDRESS] = str(request.META.get("REMOTE_ADDR", ""))
    request.session[AGENT] = request.headers.get("User-Agent", "")[:AGENT_CHARS_MAX]


class SessionLimitsMiddleware:
    """Ends a session that is too old, or saw no navigation for conf.session_idle_seconds.

    The rule: navigation and acts move `seen_at`; polls never do, so an open page does not keep a
    session alive for ever (console case 44). Age is judged by `started_at` and `seen_at`, whoever
    saved the session; no act moves `started_at`.
    """

    def __init__(self, get_response: Next):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.user.is_authenticated:
            self._judge(request)
        return self.get_response(request)

    def _judge(self, request: HttpRequest) -> None:
        if STARTED_AT not in request.session:
            begin_session(request)
        now = int(clock.now().timestamp())
        idle = now - int(request.session.get(SEEN_AT, now))
        age = now - int(request.session[STARTED_AT])
        if idle >= conf.session_idle_seconds or age >= conf.session_age_seconds_max:
            logout(request)
            return
        touch_after = min(TOUCH_SECONDS_MAX, conf.session_idle_seconds // 10)
        if not is_poll(request) and idle >= touch_after:
            request.session[SEEN_AT] = now


class ZoneMiddleware:
    """Shows all times of a page in one zone: the person's choice, else settings.TIME_ZONE."""

    def __init__(self, get_response: Next):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        with timezone.override(ZoneInfo(zone_of(request) or settings.TIME_ZONE)):
            response = self.get_response(request)
        remember_zone(request, response)
        return response
