"""Trusted proxies: who may say which address a request came from, and that it came by TLS (E5).

In front of both doors, so that throttles, audit rows and redirects all see one answer.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

ENTRIES_MAX = 32  # more hops than any real way has


def networks(text: str) -> tuple[Network, ...]:
    """`10.0.0.5, 10.1.0.0/24, ::1` -> networks. ImproperlyConfigured names a wrong entry."""
    found = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(ipaddress.ip_network(entry))
        except ValueError:
            raise ImproperlyConfigured(
                f"BAILING_TRUSTED_PROXIES: {entry[:60]!r} is no address or network"
            ) from None
    return tuple(found)


class TrustedProxies:
    """Puts the caller's own address and scheme into the scope, from headers of trusted proxies.

    X-Forwarded-For and X-Forwarded-Proto count only when the peer's address is in `trusted`; from
    anybody else they are words. Of the addresses the last one that is no proxy counts: what stands
    before it, its sender wrote. Other forwarding headers (Host, Port, Forwarded, X-Real-IP) never
    count.
    """

    def __init__(self, app: App, *, trusted: Sequence[Network]) -> None:
        self._app, self._trusted = app, trusted

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http" and self._trusted and self._is_trusted(_peer(scope)):
            scope = {**scope, **self._told(scope)}
        await self._app(scope, receive, send)

    def _told(self, scope: dict[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        address = self._caller(_entries(scope, b"x-forwarded-for"))
        if address is not None:
            told["client"] = (str(address), 0)
        schemes = _entries(scope, b"x-forwarded-proto")
        if schemes:
            told["scheme"] = "https" if schemes[-1].lower() == "https" else "http"
        return told

    def _caller(self, entries: list[str]) -> Address | None:
        """The last address that is no proxy of ours; None where the proxies named none."""
        last = None
        for entry in reversed(entries[-ENTRIES_MAX:]):
            address = _address(entry)
            if address is None:  # the proxy before it passed on what it did not check
                break
            last = address
            if not self._is_trusted(address):
                break
        return last

    def _is_trusted(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._trusted)


def _peer(scope: dict[str, Any]) -> Address | None:
    client = scope.get("client")
    return _address(str(client[0])) if client else None


def _address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _entries(scope: dict[str, Any], name: bytes) -> list[str]:
    """The values of a header that may come several times, in their order."""
    values = b",".join(value for key, value in scope["headers"] if key == name)
    return [part for part in (one.strip() for one in values.decode("latin-1").split(",")) if part]
