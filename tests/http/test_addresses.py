"""Which URLs and addresses are refused, and that the checked address is the dialled one (E6)."""

import asyncio

import pytest

from kernel.errors import AddressRefused, NotSent
from kernel.http import AddressPolicy, Door, check_url
from tests.http.conftest import ANYWHERE, Call, calling, whole
from tests.support.hostile_peer import HostilePeer

PUBLIC = AddressPolicy()

METADATA = [
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "fd00:ec2::254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::",
]
PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fd00::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
]
NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "169.254.1.1",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::127.0.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "100::1",
    "64:ff9b:1::7f00:1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "3fff::1",
    "5f00::1",
    "not an address",
]
GLOBAL = [
    "1.1.1.1",
    "93.184.216.34",
    "2606:4700:4700::1111",
    "2a00:1450:4001:82f::200e",
    "::ffff:1.1.1.1",
    "64:ff9b::101:101",
]


@pytest.mark.parametrize("address", METADATA + PRIVATE + NEVER)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(AddressRefused):
        PUBLIC.check(address)


@pytest.mark.parametrize("address", METADATA + NEVER)
def test_allowing_private_addresses_never_opens_metadata_or_the_rest(address: str) -> None:
    with pytest.raises(AddressRefused):
        ANYWHERE.check(address)


@pytest.mark.parametrize("address", PRIVATE + GLOBAL)
def test_private_addresses_can_be_allowed(address: str) -> None:
    ANYWHERE.check(address)


@pytest.mark.parametrize("address", GLOBAL)
def test_a_public_address_is_allowed(address: str) -> None:
    PUBLIC.check(address)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/path",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "http://",
        "http:///path",
        "http://:80/",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://example.com@evil.test/",
        "http://example.com:0/",
        "http://example.com:/",
        "http://example.com:65536/",
        "http://example.com:port/",
        "http://exa mple.com/",
        "http://example.com/a b",
        "http://example.com/\r\nX-Injected: 1",
        "http://example.com\\@evil.test/",
        "http://exämple.com/",
        "http://１２７.0.0.1/",
        "http://127。0。0。1/",
        "http://%31%32%37.0.0.1/",
        "http://-example.com/",
        "http://[::1/",
        "http://[::1%25eth0]/",
        "http://[v1.fe]/",
        "http://127.1/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://0x7f.1/",
        "http://127.0.0.1./",
        "http://017700000001/",
        "http://example.com/" + "a" * 9000,
    ],
)
def test_a_url_that_could_be_read_two_ways_is_refused(url: str) -> None:
    with pytest.raises(AddressRefused):
        check_url(url, ANYWHERE)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:169.254.169.254]", "10.1.2.3"])
def test_a_literal_address_is_checked_before_anything_is_dialled(host: str) -> None:
    with pytest.raises(AddressRefused):
        check_url(f"https://{host}/", PUBLIC)


def test_a_refused_url_is_not_repeated_in_the_message() -> None:
    with pytest.raises(AddressRefused) as refused:
        check_url("http://user:hunter2@example.com/?token=hunter2", PUBLIC)
    assert "hunter2" not in str(refused.value)


def test_a_good_url_is_taken_apart() -> None:
    target = check_url("https://API.Example.com:8443/v1/chat?x=1#part", PUBLIC)
    assert target == ("https", "api.example.com", 8443, "/v1/chat?x=1")
    assert target.authority == "api.example.com:8443"
    assert check_url("http://example.com", PUBLIC) == ("http", "example.com", 80, "/")
    assert check_url("https://example.com:443/", PUBLIC).authority == "example.com"
    assert check_url("https://[2606:4700::1]/", PUBLIC).authority == "[2606:4700::1]"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_every_method_is_refused_on_the_dialled_address(
    stack: str, peer: HostilePeer, method: str
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    door = Door(stack=stack, resolve=resolve)
    with pytest.raises(AddressRefused):
        url = f"http://rebound.test:{peer.port}/ok"
        await whole(calling(door), url, method=method, policy=PUBLIC)
    assert peer.connections == 0
    await door.aclose()


@pytest.mark.parametrize("found", [["1.1.1.1", "10.0.0.1"], ["10.0.0.1", "1.1.1.1"]])
async def test_one_private_address_among_public_ones_refuses_the_name(
    stack: str, found: list[str]
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return found

    door = Door(stack=stack, resolve=resolve)
    with pytest.raises(AddressRefused):
        await whole(calling(door), "http://mixed.test/", policy=PUBLIC)
    await door.aclose()


async def test_a_name_is_resolved_once_and_that_address_is_dialled(
    stack: str, peer: HostilePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    dialled: list[str] = []
    real = asyncio.get_running_loop().create_connection

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        # A rebinding name: harmless at first, the metadata service ever after.
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    async def create_connection(factory: object, host: str, *rest: object, **kwargs: object):
        dialled.append(host)
        return await real(factory, host, *rest, **kwargs)

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
    door = Door(stack=stack, resolve=resolve, idle_seconds=0)
    url = f"http://rebound.test:{peer.port}/ok"
    assert await whole(calling(door), url) == b"xx"
    with pytest.raises(AddressRefused):
        await whole(calling(door), url)
    assert (asked, dialled) == (["rebound.test"] * 2, ["127.0.0.1"])
    assert peer.requests[0].header("host") == f"rebound.test:{peer.port}"
    await door.aclose()


async def test_a_kept_connection_is_not_shared_with_a_stricter_policy(
    stack: str, peer: HostilePeer
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    door = Door(stack=stack, resolve=resolve)
    url = f"http://inside.test:{peer.port}/ok"
    await whole(calling(door), url, policy=ANYWHERE)
    assert door.idle == 1
    with pytest.raises(AddressRefused):
        await whole(calling(door), url, policy=PUBLIC)
    assert peer.received["ok"] == 1
    await door.aclose()


async def test_the_next_address_is_tried_when_one_does_not_answer(
    stack: str, peer: HostilePeer
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    door = Door(stack=stack, resolve=resolve)
    assert await whole(calling(door), f"http://two.test:{peer.port}/ok") == b"xx"
    assert peer.received["ok"] == 1
    await door.aclose()


@pytest.mark.parametrize("found", [[], None])
async def test_a_name_that_does_not_resolve_is_not_sent(
    stack: str, found: list[str] | None
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        if found is None:
            raise OSError(-2, "Name or service not known")
        return found

    door = Door(stack=stack, resolve=resolve)
    with pytest.raises(NotSent) as failed:
        await whole(calling(door), "http://nowhere.test/path?token=hunter2")
    assert failed.value.details["reason"] == "dns"
    assert "nowhere.test" in str(failed.value) and "hunter2" not in str(failed.value)
    await door.aclose()


async def test_the_system_resolver_finds_localhost(call: Call, peer: HostilePeer) -> None:
    assert await whole(call, f"http://localhost:{peer.port}/ok") == b"xx"
    with pytest.raises(AddressRefused):
        await whole(call, f"http://localhost:{peer.port}/ok", policy=PUBLIC)
