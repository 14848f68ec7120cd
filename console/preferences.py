"""A person's taste, rendered by the server: theme and keys per browser, zone and views per person.

Theme and shortcuts live in cookies. The zone lives in the person's row (migration 0072) and is
repeated in a cookie that names the person, so that a page asks the row once per browser.
"""

from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import available_timezones

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from console.migrated import is_migrated
from kernel.access.preferences import Taste, taste_of
from kernel.schema import PREFERENCES

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


def taste(request: HttpRequest) -> Taste:
    """What the signed-in person keeps; read once per request. The empty one for strangers."""
    known: Taste | None = getattr(request, "_taste", None)
    if known is None:
        person_id = getattr(getattr(request, "user", None), "pk", None)
        known = Taste()
        if person_id is not None and is_migrated(PREFERENCES):
            known = taste_of(person_id=person_id)
        request._taste = known  # type: ignore[attr-defined]  # ours, read above
    return known


def zone_of(request: HttpRequest) -> str:
    """The chosen zone, '' when none (or none that exists) is chosen."""
    owner, _colon, zone = request.COOKIES.get(COOKIES["zone"], "").partition(":")
    person_id = getattr(getattr(request, "user", None), "pk", None)
    if person_id is None:
        return ""
    if owner != str(person_id):
        zone = taste(request).zone
    return zone if zone in zones() else ""


def remember_zone(request: HttpRequest, response: HttpResponseBase) -> None:
    """Repeats the person's zone in a cookie where this browser does not know it yet."""
    if getattr(request, "_taste", None) is None or request.user.pk is None:
        return
    known = f"{request.user.pk}:{taste(request).zone}"
    if COOKIES["zone"] not in response.cookies and request.COOKIES.get(COOKIES["zone"]) != known:
        set_cookie(request, response, "zone", known)


def preferences_of(request: HttpRequest) -> Preferences:
    """The preferences of this request; unknown cookie values count as the default."""
    theme = request.COOKIES.get(COOKIES["theme"], "")
    keys = request.COOKIES.get(COOKIES["keys"], "")
    return Preferences(
        theme=theme if theme in THEMES else THEMES[0],
        keys=keys if keys in KEYS else KEYS[0],
        zone=zone_of(request) or settings.TIME_ZONE,
    )


def set_cookie(request: HttpRequest, response: HttpResponseBase, name: str, value: str) -> None:
    """Keep one preference in this browser for COOKIE_SECONDS."""
    response.set_cookie(
        COOKIES[name],
        value,
        max_age=COOKIE_SECONDS,
        secure=request.is_secure(),
        samesite="Lax",  # the theme switch works without a round trip: the script sets it, too
    )
