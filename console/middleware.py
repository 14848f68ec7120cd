"""Around every console request: its id, the idle limit of the session, the time zone."""

from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from structlog.contextvars import bound_contextvars

from console.preferences import zone_of
from kernel import clock
from kernel.conf import conf
from kernel.ids import new_id

Next = Callable[[HttpRequest], HttpResponseBase]

SEEN_AT = "seen_at"  # session key: seconds since the epoch of the last navigation
TOUCH_SECONDS_MAX = 60  # a navigation writes the session at most this often


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


class IdleSessionMiddleware:
    """Ends a session that saw no navigation for conf.session_idle_seconds.

    The rule: navigation and acts move `seen_at`; polls never do, so an open page does not keep a
    session alive for ever (console case 44). Age is judged by `seen_at`, whoever saved the session.
    """

    def __init__(self, get_response: Next):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.user.is_authenticated:
            self._judge(request)
        return self.get_response(request)

    def _judge(self, request: HttpRequest) -> None:
        now = int(clock.now().timestamp())
        idle = now - int(request.session.get(SEEN_AT, now))
        if idle >= conf.session_idle_seconds:
            logout(request)
            return
        touch_after = min(TOUCH_SECONDS_MAX, conf.session_idle_seconds // 10)
        if SEEN_AT not in request.session or (not is_poll(request) and idle >= touch_after):
            request.session[SEEN_AT] = now


class ZoneMiddleware:
    """Shows all times of a page in one zone: the person's choice, else settings.TIME_ZONE."""

    def __init__(self, get_response: Next):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        with timezone.override(ZoneInfo(zone_of(request) or settings.TIME_ZONE)):
            return self.get_response(request)


def session_ends_at(request: HttpRequest) -> datetime | None:
    """When the session ends if nothing is clicked from now on; None for strangers."""
    seen_at = request.session.get(SEEN_AT)
    if seen_at is None:
        return None
    return datetime.fromtimestamp(int(seen_at) + conf.session_idle_seconds, UTC)
