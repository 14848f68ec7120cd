"""A person's taste, kept in cookies, rendered by the server: theme, single-key shortcuts, zone."""

from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import available_timezones

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.views.decorators.http import require_POST

from console.access import local_path, needs

THEMES = ("auto", "light", "dark")
KEYS = ("on", "off")
COOKIES = {"theme": "bz_theme", "keys": "bz_keys", "zone": "bz_zone"}
COOKIE_SECONDS = 365 * 86400


@dataclass(frozen=True, slots=True)
class Preferences:
    """What the base template needs: `theme` becomes data-theme, so nothing flashes."""

    theme: str
    keys: str
    zone: str


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """Names of the zones that may be chosen."""
    return frozenset(available_timezones())


def zone_of(request: HttpRequest) -> str:
    """The chosen zone, '' when none (or none that exists) is chosen."""
    zone = request.COOKIES.get(COOKIES["zone"], "")
    return zone if zone in zones() else ""


def preferences_of(request: HttpRequest) -> Preferences:
    """The preferences of this request; unknown cookie values count as the default."""
    theme = request.COOKIES.get(COOKIES["theme"], "")
    keys = request.COOKIES.get(COOKIES["keys"], "")
    return Preferences(
        theme=theme if theme in THEMES else THEMES[0],
        keys=keys if keys in KEYS else KEYS[0],
        zone=zone_of(request) or settings.TIME_ZONE,
    )


@needs("view")
@require_POST
def save(request: HttpRequest) -> HttpResponse:
    """POST theme, keys or zone (any of them); answers 303 back to the page. 400 on other values."""
    allowed = {"theme": frozenset(THEMES), "keys": frozenset(KEYS), "zone": zones() | {""}}
    chosen = {name: request.POST[name] for name in allowed if name in request.POST}
    if not chosen or any(value not in allowed[name] for name, value in chosen.items()):
        return HttpResponseBadRequest("theme, keys or zone", content_type="text/plain")
    back = local_path(request, request.headers.get("Referer", "/"))
    response = HttpResponseRedirect(back)
    response.status_code = 303
    for name, value in chosen.items():
        response.set_cookie(
            COOKIES[name],
            value,
            max_age=COOKIE_SECONDS,
            secure=request.is_secure(),
            samesite="Lax",  # the theme switch works without a round trip: the script sets it, too
        )
    return response
