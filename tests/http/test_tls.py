"""Certificates are always verified; a failed handshake is proven not sent (A5, E6)."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

from kernel.errors import NotSent
from kernel.http import Door
from tests.http.conftest import calling, whole
from tests.support.certificates import make_authority
from tests.support.hostile_answers import PeerWire
from tests.support.hostile_peer import HostilePeer


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_authority(tmp_path_factory.mktemp("authority"))


def server_context(authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    return context


@pytest.fixture
async def tls_peer(authority: Path) -> AsyncIterator[HostilePeer]:
    async with HostilePeer(tls=server_context(authority)) as peer:
        yield peer


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_a_trusted_certificate_is_accepted_and_the_connection_kept(
    stack: str, tls_peer: HostilePeer, authority: Path
) -> None:
    door = Door(stack=stack, ca_file=str(authority / "ca.pem"), resolve=loopback)
    for _ in range(3):
        assert await whole(calling(door), tls_peer.url("ok", size=300_000)) == b"x" * 300_000
    assert tls_peer.connections == 1
    url = f"https://good.test:{tls_peer.port}/ok"
    assert await whole(calling(door), url) == b"xx"
    await door.aclose()


async def test_an_unknown_authority_is_not_sent(stack: str, tls_peer: HostilePeer) -> None:
    door = Door(stack=stack)
    with pytest.raises(NotSent) as failed:
        await whole(calling(door), tls_peer.url("ok"))
    assert failed.value.details["reason"] == "tls"
    assert (tls_peer.received["ok"], door.busy) == (0, 0)
    await door.aclose()


async def test_a_certificate_for_another_name_is_not_sent(
    stack: str, tls_peer: HostilePeer, authority: Path
) -> None:
    door = Door(stack=stack, ca_file=str(authority / "ca.pem"), resolve=loopback)
    with pytest.raises(NotSent) as failed:
        await whole(calling(door), f"https://other.test:{tls_peer.port}/ok")
    assert failed.value.details["reason"] == "tls"
    assert "other.test" in str(failed.value)
    assert tls_peer.received["ok"] == 0
    await door.aclose()


async def test_a_peer_without_tls_is_not_sent(stack: str, peer: HostilePeer) -> None:
    async def first(wire: PeerWire) -> None:
        await wire.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with HostilePeer(first=first) as plain:
        door = Door(stack=stack)
        with pytest.raises(NotSent) as failed:
            await whole(calling(door), plain.url("ok").replace("http:", "https:"))
        assert failed.value.details["reason"] == "tls"
        await door.aclose()


@pytest.mark.parametrize("reset", [False, True])
async def test_a_connection_lost_in_the_handshake_is_not_sent(stack: str, reset: bool) -> None:
    async def first(wire: PeerWire) -> None:
        await wire.reader.read(10)
        if reset:
            wire.reset()
        raise ConnectionError

    async with HostilePeer(first=first) as peer:
        door = Door(stack=stack)
        with pytest.raises(NotSent):
            await whole(calling(door), peer.url("ok").replace("http:", "https:"))
        await door.aclose()


async def test_a_handshake_that_hangs_is_not_sent_in_time(stack: str) -> None:
    async def first(wire: PeerWire) -> None:
        await asyncio.Event().wait()

    async with HostilePeer(first=first) as peer:
        door = Door(stack=stack)
        with pytest.raises(NotSent) as failed:
            url = peer.url("ok").replace("http:", "https:")
            await whole(calling(door), url, connect_seconds=0.2)
        assert failed.value.details["reason"] == "timeout"
        assert door.busy == 0
        await door.aclose()


@pytest.mark.parametrize("name", ["short_body", "reset_in_body", "close_delimited"])
async def test_a_loss_under_tls_is_never_a_whole_body(
    stack: str, tls_peer: HostilePeer, authority: Path, name: str
) -> None:
    door = Door(stack=stack, ca_file=str(authority / "ca.pem"))
    with pytest.raises(Exception, match=r"before the end|not proven"):
        await whole(calling(door), tls_peer.url(name))
    assert tls_peer.received[name] == 1
    await door.aclose()


def test_tls_on_uvloop_keeps_connections_and_refuses_strangers(stack: str, authority: Path) -> None:
    async def main() -> None:
        async with HostilePeer(tls=server_context(authority)) as peer:
            door = Door(stack=stack, ca_file=str(authority / "ca.pem"))
            for _ in range(3):
                assert await whole(calling(door), peer.url("ok", size=300_000)) == b"x" * 300_000
            assert (peer.connections, door.idle, door.busy) == (1, 1, 0)
            await door.aclose()
            stranger = Door(stack=stack)
            with pytest.raises(NotSent) as failed:
                await whole(calling(stranger), peer.url("ok"))
            assert failed.value.details["reason"] == "tls"
            await stranger.aclose()

    uvloop.run(main())
