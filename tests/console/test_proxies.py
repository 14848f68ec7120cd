"""Who may name the caller's address and scheme: configured proxies, nobody else (E5)."""

import asyncio

import pytest
from django.core.exceptions import ImproperlyConfigured

from console.proxies import TrustedProxies, networks

TRUSTED = networks("10.0.0.0/24, ::1")
FOR, PROTO = b"x-forwarded-for", b"x-forwarded-proto"


def told(peer, *headers, trusted=TRUSTED):
    """(address, scheme) that the application is told."""
    seen = {}

    async def app(scope, receive, send):
        seen.update(scope)

    scope = {
        "type": "http",
        "client": peer and (peer, 4711),
        "scheme": "http",
        "headers": list(headers),
    }
    asyncio.run(TrustedProxies(app, trusted=trusted)(scope, None, None))
    return seen["client"] and seen["client"][0], seen["scheme"]


@pytest.mark.parametrize("peer", ["203.0.113.9", "10.0.1.1", "127.0.0.1", "::2", "unix", None])
def test_a_stranger_names_nothing(peer):
    lies = ((FOR, b"6.6.6.6"), (PROTO, b"https"))
    assert told(peer, *lies) == (peer, "http")
    assert told(peer, *lies, trusted=()) == (peer, "http")


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ([b"203.0.113.9"], "203.0.113.9"),
        ([b"6.6.6.6, 203.0.113.9"], "203.0.113.9"),
        ([b"6.6.6.6", b"203.0.113.9"], "203.0.113.9"),
        ([b"6.6.6.6, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        ([b"10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ([b"2001:db8::7, ::ffff:10.0.0.2"], "2001:db8::7"),
        ([b"203.0.113.9, <script>, 10.0.0.2"], "10.0.0.2"),
        ([b"203.0.113.9, unknown"], "10.0.0.1"),
        ([b""], "10.0.0.1"),
        ([b"\xff\n"], "10.0.0.1"),
        ([b"1.1.1.1, " * 50 + b"10.0.0.2, " * 40], "10.0.0.2"),
    ],
)
def test_of_what_a_proxy_passes_on_the_last_address_that_is_no_proxy_counts(forwarded, address):
    assert told("10.0.0.1", *((FOR, value) for value in forwarded)) == (address, "http")


@pytest.mark.parametrize(
    ("scheme", "read"), [(b"https", "https"), (b"HTTPS", "https"), (b"https, http", "http")]
)
def test_a_proxy_says_whether_its_side_was_tls(scheme, read):
    assert told("::1", (PROTO, scheme)) == ("::1", read)


def test_no_other_header_counts():
    others = (b"forwarded", b"x-real-ip", b"x-client-ip", b"true-client-ip", b"x_forwarded_for")
    assert told("10.0.0.1", *((name, b"6.6.6.6") for name in others)) == ("10.0.0.1", "http")


@pytest.mark.parametrize("text", ["1", "proxy.example", "10.0.0.1/24", "10.0.0.0/33"])
def test_what_is_no_network_stops_the_start_by_name(text):
    with pytest.raises(ImproperlyConfigured, match="BAILING_TRUSTED_PROXIES"):
        networks(f"127.0.0.1, {text}")
