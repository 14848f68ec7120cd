"""What a session proved about its person, and when: keys of the session."""

from django.http import HttpRequest

from kernel import clock
from kernel.access.sign_ins import STARTED_AT
from kernel.conf import conf

CONFIRMED_AT = "confirmed_at"  # seconds since the epoch
FACTOR = "second_factor"  # True once a second factor was right, or was set up here


def begin(request: HttpRequest) -> None:
    """A new sign-in inherits no proof from whoever used this browser before."""
    for key in (CONFIRMED_AT, FACTOR):
        request.session.pop(key, None)


def confirm(request: HttpRequest) -> None:
    """The person proved now who they are."""
    request.session[CONFIRMED_AT] = _now()


def is_confirmed(request: HttpRequest) -> bool:
    """Whether the person proved who they are in the last conf.step_up_seconds."""
    session = request.session
    proved_at = max(int(session.get(CONFIRMED_AT, 0)), int(session.get(STARTED_AT, 0)))
    return _now() - proved_at < conf.step_up_seconds


def prove_factor(request: HttpRequest) -> None:
    """A second factor was right, which proves who it is as well."""
    request.session[FACTOR] = True
    confirm(request)


def has_proved_factor(request: HttpRequest) -> bool:
    """Whether this session proved a second factor."""
    return bool(request.session.get(FACTOR))


def _now() -> int:
    return int(clock.now().timestamp())
