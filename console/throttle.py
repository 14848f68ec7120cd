"""Failed tries, counted per name and address and shared by all processes (console case 86)."""

import hashlib
import ipaddress

from django.core.cache import cache
from django.http import HttpRequest
from django.utils.translation import gettext as _

from kernel import access, schema
from kernel.access.sign_ins import record_throttled
from kernel.conf import conf

CROWD_FACTOR = 10  # an office behind one address; or one name, tried from many addresses
NETWORK_BITS = 64  # who has one IPv6 address has all of its network
_NAME_CHARS_MAX = 150  # Django's own limit of a user name


def client_address(request: HttpRequest) -> str:
    """The caller's address; what trusted proxies said of it is in already (console/proxies.py)."""
    return str(request.META.get("REMOTE_ADDR", ""))


class Throttle:
    """Tries of one (name, address), of one address, and of one name from anywhere, in a window.

    A try counts before the password is looked at, so that tries at the same time all count; a right
    one is taken back. One address cannot use up what a name has: past its own limit it counts no
    further.
    """

    def __init__(self, *, name: str, address: str, purpose: str = "", request_id: str = ""):
        self._name, self._address = name[:_NAME_CHARS_MAX], address
        self._request_id = request_id
        # Apart from the name: what a stranger types as a name must not count for another purpose.
        folded, network = (purpose, self._name.casefold()), _network(address)
        self.pair = _key("pair", *folded, network)
        self._limits = {
            self.pair: conf.sign_in_tries_max,
            _key("address", network): conf.sign_in_tries_max * CROWD_FACTOR,
            _key("name", *folded): conf.sign_in_tries_max * CROWD_FACTOR,
        }

    @classmethod
    def of(cls, request: HttpRequest, *, name: str, purpose: str = "") -> "Throttle":
        """`purpose`: '' for signing in; codes and confirmations have counts of their own."""
        request_id = getattr(request, "request_id", "")
        address = client_address(request)
        return cls(name=name, address=address, purpose=purpose, request_id=request_id)

    def wait_seconds(self) -> int:
        """Counts this try. 0, or how many seconds to wait when a limit was reached before."""
        if not schema.is_applied(schema.SIGN_IN):
            return _count_here(self._limits)
        wait_seconds = access.count_try(
            limits=self._limits, window_seconds=conf.sign_in_window_seconds
        )
        if wait_seconds:
            record_throttled(
                name=self._name,
                address=self._address,
                request_id=self._request_id,
                wait_seconds=wait_seconds,
            )
        return wait_seconds

    def succeeded(self) -> None:
        """The tries of this name from here are forgotten; the others stay counted."""
        if schema.is_applied(schema.SIGN_IN):
            access.forget_tries(what=self.pair)
        cache.delete(_hashed(self.pair))


def sso_wait_seconds(request: HttpRequest) -> int:
    """Counts one start of a single sign-on, which asks the provider. 0, or the seconds to wait.

    By address alone: nobody is named yet, and strangers must not use up what everybody has.
    """
    network = _network(client_address(request))
    limits = {_key("sso", network): conf.sign_in_tries_max * CROWD_FACTOR}
    if not schema.is_applied(schema.SIGN_IN):
        return _count_here(limits)
    return access.count_try(limits=limits, window_seconds=conf.sign_in_window_seconds)


def _count_here(limits: dict[str, int]) -> int:
    """Until 0070 is applied this process counts alone (H3)."""
    for what, most in limits.items():
        key = _hashed(what)
        count = cache.get(key) or 0
        if count >= most:
            return int(conf.sign_in_window_seconds)
        cache.set(key, count + 1, timeout=conf.sign_in_window_seconds)
    return 0


def _hashed(what: str) -> str:
    return f"try:{hashlib.sha256(what.encode('utf-8', 'replace')).hexdigest()}"


def wait_text(seconds: int) -> str:
    """'20 s', '4 min 10 s': exact, for somebody who waits for it."""
    minutes, rest = divmod(seconds, 60)
    if not minutes:
        return _("%(n)s s") % {"n": seconds}
    return _("%(m)s min %(n)s s") % {"m": minutes, "n": rest}


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((found, NETWORK_BITS), strict=False))


def _key(*fields: str) -> str:
    return "".join(f"{len(field)}:{field}" for field in fields)  # no two lists give one text
