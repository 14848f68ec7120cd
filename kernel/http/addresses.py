"""Which addresses an outgoing call may dial; a URL is read once, here.

Two looks, both needed. `check_url` is syntax: scheme, user info, number tricks. `checked_addresses`
resolves the name and checks what came back; the caller dials exactly those addresses, so there is
no moment between check and connect in which a name can change its mind (E6).
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv4Address as IPv4
from ipaddress import IPv6Address as IPv6
from typing import NamedTuple
from urllib.parse import urlsplit

from kernel.errors import AddressRefused, NotSent

Address = IPv4 | IPv6
Resolve = Callable[[str, int], Awaitable[list[str]]]

URL_CHARS_MAX = 8192
DEFAULT_PORTS = {"http": 80, "https": 443}

# Addresses that hand out credentials to whoever asks from inside. No setting opens them.
METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Azure, Google, most others
        "169.254.170.2",  # AWS container credentials
        "169.254.170.23",  # AWS pod identity
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure wire server, a public address
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS pod identity
        "fd20:ce::254",  # Google
    )
)
PRIVATE = tuple(
    ipaddress.ip_network(text)
    for text in (
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",  # carrier-grade NAT, also overlay networks
        "::1/128",
        "fc00::/7",
    )
)
NEVER = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments
        "192.88.99.0/24",  # 6to4 relays
        "2001::/32",  # Teredo: the packet goes wherever the tunnel says
        "3fff::/20",  # documentation
    )
)
GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
NAT64 = ipaddress.ip_network("64:ff9b::/96")
HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?\.?")
NOT_IN_A_URL = re.compile(r"[^\x21-\x7e]|[\\<>\"{}|^`]")


class Target(NamedTuple):
    """A URL taken apart: what is dialled and what is asked for. `path` includes the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The Host header: no port where the scheme implies it, brackets around IPv6."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if DEFAULT_PORTS[self.scheme] == self.port else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """For messages: never the path, the query or anything that could be a credential."""
        return f"{self.scheme}://{self.authority}"


SWITCH = (
    'a loopback or private one needs --allow-private, in the console "Allow a loopback or private'
    ' address"'
)


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Public addresses only; `allow_private` adds loopback and private ones, never metadata."""

    allow_private: bool = False

    def check(self, address: str | Address) -> None:
        """Raises AddressRefused unless this address may be dialled; a wrapped IPv4 is unwrapped."""
        try:
            ip = ipaddress.ip_address(address) if isinstance(address, str) else address
        except ValueError:
            raise AddressRefused("not an IP address", reason="address") from None
        plain = _unwrapped(ip)
        if self._allows(plain):
            return
        if AddressPolicy(allow_private=True)._allows(plain):
            raise AddressRefused(f"the address {ip} is not allowed: {SWITCH}", reason="address")
        raise AddressRefused(f"the address {ip} is not allowed", reason="address")

    def _allows(self, ip: Address) -> bool:
        if ip in METADATA or any(ip in network for network in NEVER):
            return False
        if any(ip in network for network in PRIVATE):
            return self.allow_private
        if isinstance(ip, IPv6):
            # Everything else in IPv6 is link-local, multicast, reserved or a tunnel.
            return ip in GLOBAL_UNICAST and ip.is_global and ip.scope_id is None
        return ip.is_global and not ip.is_multicast and not ip.is_reserved


def _unwrapped(ip: Address) -> Address:
    """The IPv4 address a mapped, 6to4 or NAT64 address leads to; others as they are."""
    if isinstance(ip, IPv4):
        return ip
    inner = ip.ipv4_mapped or ip.sixtofour
    if inner is None and ip in NAT64:
        inner = IPv4(int(ip) & 0xFFFFFFFF)
    return inner or ip


def check_url(url: str, policy: AddressPolicy) -> Target:
    """Read a URL, strictly. Raises AddressRefused; a literal address is checked at once (E6).

    A name is not resolved here: that happens when it is dialled, see `checked_addresses`.
    """
    if not isinstance(url, str) or not url or len(url) > URL_CHARS_MAX:
        raise _bad_url(f"empty, or longer than {URL_CHARS_MAX} characters")
    if NOT_IN_A_URL.search(url):
        raise _bad_url("only printable ASCII: write the host as xn--, percent-encode the rest")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad_url("host or port cannot be read") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise _bad_url("only http:// and https://")
    if "@" in parts.netloc:
        raise _bad_url("no user name or password in the URL")
    if port == 0 or parts.netloc.endswith(":"):
        raise _bad_url("host or port cannot be read")
    host = _checked_host(parts.hostname or "", in_brackets="[" in parts.netloc, policy=policy)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], path)


def _checked_host(host: str, *, in_brackets: bool, policy: AddressPolicy) -> str:
    if in_brackets:
        try:
            ip = IPv6(host)
        except ValueError:
            raise _bad_url("the address in brackets is not IPv6") from None
        if ip.scope_id is not None:
            raise _bad_url("no zone in an address")
        policy.check(ip)
        return str(ip)
    if len(host) > 253 or not HOST.fullmatch(host):
        raise _bad_url("the host name is missing or not valid")
    try:
        policy.check(IPv4(host))
    except ValueError:
        if _is_number_trick(host):
            raise _bad_url("write an IPv4 address as four decimal numbers") from None
    return host


def _is_number_trick(host: str) -> bool:
    """127.1, 0x7f000001, 2130706433, 0177.0.0.1: the C library would read an address."""
    try:
        socket.inet_aton(host.rstrip("."))
    except OSError:
        return False
    return True


def _bad_url(why: str) -> AddressRefused:
    # The URL itself is not repeated: it may carry a token.
    return AddressRefused(f"the URL is refused: {why}", reason="url")


async def resolve_name(host: str, port: int) -> list[str]:
    """Every address the system's resolver knows for this name, in its order."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def checked_addresses(
    target: Target, *, policy: AddressPolicy, resolve: Resolve = resolve_name
) -> list[str]:
    """The addresses to dial, all of them allowed. One denied address refuses the name.

    Raises AddressRefused, or NotSent(reason="dns") where the name does not resolve.
    """
    try:
        ip = ipaddress.ip_address(target.host)
    except ValueError:
        pass
    else:
        policy.check(ip)
        return [str(ip)]
    try:
        found = await resolve(target.host, target.port)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise NotSent(f"{target.host} does not resolve: {why}", reason="dns") from None
    if not found:
        raise NotSent(f"{target.host} has no address", reason="dns")
    for address in found:
        policy.check(address)
    return found
