"""A request leaves once; "not sent" is claimed only where that is proven (A5, reliability 7)."""

import asyncio
import socket
import threading

import pytest

from kernel.errors import BodyBroken, NotSent, OutcomeUnknown
from kernel.http import Door, read_body
from kernel.http.wire import Wire, WireClosed
from tests.http.conftest import Call, calling, until_stale, whole
from tests.support.hostile_answers import PeerWire
from tests.support.hostile_peer import HostilePeer

LOST = ["reset_after_request", "close_after_request", "half_a_head", "garbage", "short_body"]


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("name", LOST)
async def test_a_request_that_may_have_arrived_is_never_sent_again(
    call: Call, peer: HostilePeer, name: str, warm: bool
) -> None:
    if warm:
        await whole(call, peer.url("ok"))
    with pytest.raises((OutcomeUnknown, BodyBroken)):
        await whole(call, peer.url(name))
    # The same connection was used when it was warm: the case that libraries like to repeat.
    assert peer.connections == 1
    assert peer.received[name] == 1


async def test_a_kept_connection_is_used_again(call: Call, door: Door, peer: HostilePeer) -> None:
    for _ in range(5):
        await whole(call, peer.url("ok"))
    assert (peer.connections, peer.received["ok"], door.idle, door.busy) == (1, 5, 1, 0)


async def test_a_connection_the_peer_closed_is_replaced_before_anything_is_written(
    call: Call, door: Door, peer: HostilePeer
) -> None:
    await whole(call, peer.url("keep_then_close", after_ms=50))
    await until_stale(door)
    await whole(call, peer.url("keep_then_close"))
    assert (peer.connections, peer.received["keep_then_close"]) == (2, 2)


async def test_a_close_seen_after_the_look_but_before_the_first_byte_is_no_send(
    call: Call, door: Door, peer: HostilePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await whole(call, peer.url("keep_then_close", after_ms=50))
    await until_stale(door)
    # The look at the idle connection misses the close; the write itself still finds it.
    monkeypatch.setattr(Wire, "_is_readable", lambda self: False)
    await whole(call, peer.url("keep_then_close"))
    assert (peer.connections, peer.received["keep_then_close"]) == (2, 2)


async def test_a_close_that_only_the_kernel_has_seen_is_found_by_the_look(call: Call) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    requests = []

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _address = listener.accept()
            with connection:
                requests.append(connection.recv(65536))
                connection.sendall(answer)
                may_close.wait(5)
            closed.set()

    may_close, closed = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        listener.settimeout(10)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert await whole(call, url) == b"ok"
        # The loop stands still while the peer closes: its protocol cannot have noticed.
        may_close.set()
        assert closed.wait(5)
        assert await whole(call, url) == b"ok"
        thread.join(5)
    assert len(requests) == 2


async def test_a_peer_that_always_closes_gets_each_request_at_most_once(
    call: Call, peer: HostilePeer
) -> None:
    answered = unknown = 0
    for _ in range(100):
        try:
            await whole(call, peer.url("keep_then_close"))
            answered += 1
        except OutcomeUnknown:
            unknown += 1
    assert answered <= peer.received["keep_then_close"] <= answered + unknown
    assert answered + unknown == 100


async def test_idle_connections_expire_and_zero_seconds_keeps_none(
    stack: str, peer: HostilePeer
) -> None:
    door = Door(stack=stack, idle_seconds=0)
    for _ in range(3):
        await whole(calling(door), peer.url("ok"))
    assert (peer.connections, door.idle, door.busy) == (3, 0, 0)
    await door.aclose()


async def test_only_so_many_idle_connections_are_kept(stack: str, peer: HostilePeer) -> None:
    door = Door(stack=stack, idle_max=3)
    url = peer.url("chunked", gap_ms=20)
    await asyncio.gather(*(whole(calling(door), url) for _ in range(10)))
    assert (door.idle, door.busy) == (3, 0)
    await door.aclose()
    assert door.idle == 0


async def test_bytes_behind_an_answer_never_become_the_next_answer(
    call: Call, door: Door, peer: HostilePeer
) -> None:
    assert await whole(call, peer.url("understated")) == b"short"
    assert door.idle == 0
    assert await whole(call, peer.url("ok")) == b"xx"


async def test_an_answer_left_early_closes_its_connection(
    call: Call, door: Door, peer: HostilePeer
) -> None:
    async with call(url=peer.url("endless")) as answer:
        assert await anext(answer.chunks(body_bytes_max=10**9))
    assert (door.busy, door.idle) == (0, 0)


async def test_an_early_refusal_is_read_although_the_body_was_not_taken(
    call: Call, peer: HostilePeer
) -> None:
    async with call(url=peer.url("early_refusal"), content=bytes(2**23)) as answer:
        assert answer.status == 413
    assert peer.received["early_refusal"] == 1


# --- not sent, proven ---


async def test_a_closed_port_is_not_sent(call: Call, door: Door) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NotSent) as failed:
        await whole(call, f"http://127.0.0.1:{port}/path?token=hunter2")
    assert failed.value.details["reason"] == "connect"
    assert f"127.0.0.1:{port}" in str(failed.value) and "hunter2" not in str(failed.value)
    assert door.busy == 0


async def test_a_connection_that_is_not_accepted_in_time_is_not_sent(call: Call) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        with pytest.raises(NotSent) as failed:
            await whole(call, f"http://127.0.0.1:{port}/", connect_seconds=0.2)
        assert failed.value.details["reason"] == "timeout"
        for filler in fillers:
            filler.close()


async def test_a_slow_resolver_is_not_sent(stack: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    door = Door(stack=stack, resolve=resolve)
    with pytest.raises(NotSent) as failed:
        await whole(calling(door), "http://slow.test/", connect_seconds=0.1)
    assert failed.value.details["reason"] == "dns"
    await door.aclose()


async def test_no_free_slot_in_time_is_not_sent(stack: str, peer: HostilePeer) -> None:
    door = Door(stack=stack, connections_max=2, slot_seconds=0.1)
    call = calling(door)
    async with call(url=peer.url("stream_until_told")), call(url=peer.url("stream_until_told")):
        with pytest.raises(NotSent) as failed:
            await whole(call, peer.url("ok"))
    assert failed.value.details["reason"] == "slots"
    assert await whole(call, peer.url("ok")) == b"xx"
    assert peer.received["ok"] == 1
    await door.aclose()


async def test_a_reset_right_after_accepting_is_never_called_not_sent_once_bytes_left(
    stack: str,
) -> None:
    async def first(wire: PeerWire) -> None:
        await wire.reader.read(1)
        wire.reset()

    async with HostilePeer(first=first) as peer:
        door = Door(stack=stack)
        with pytest.raises(OutcomeUnknown):
            await whole(calling(door), peer.url("ok"))
        await door.aclose()


async def test_a_fresh_connection_that_closes_before_the_first_byte_is_not_dialled_again(
    call: Call, door: Door, peer: HostilePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write(self: Wire, buffer: bytes, timeout: float | None = None) -> None:
        raise WireClosed

    monkeypatch.setattr(Wire, "write", write)
    with pytest.raises(NotSent) as failed:
        await whole(call, peer.url("ok"))
    assert failed.value.details["reason"] == "connect"
    assert (peer.received["ok"], door.busy) == (0, 0)
    async with asyncio.timeout(5):
        while peer.connections < 1:
            await asyncio.sleep(0.001)
    assert peer.connections == 1


async def test_a_closed_door_makes_no_calls(call: Call, door: Door, peer: HostilePeer) -> None:
    await whole(call, peer.url("ok"))
    async with call(url=peer.url("stream_until_told")) as answer:
        chunks = answer.chunks(body_bytes_max=100)
        assert await anext(chunks) == b"first"
        await door.aclose()
        with pytest.raises(BodyBroken):
            await anext(chunks)
    with pytest.raises(NotSent) as failed:
        await whole(call, peer.url("ok"))
    assert failed.value.details["reason"] == "closed"
    assert (door.busy, door.idle, peer.received["ok"]) == (0, 0, 1)


async def test_a_call_that_is_connecting_while_the_door_closes_is_not_sent(
    stack: str, peer: HostilePeer
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        await door.aclose()
        return ["127.0.0.1"]

    door = Door(stack=stack, resolve=resolve)
    with pytest.raises(NotSent) as failed:
        await whole(calling(door), f"http://late.test:{peer.port}/ok")
    assert failed.value.details["reason"] == "closed"
    assert (peer.received["ok"], door.busy) == (0, 0)


async def test_closing_never_makes_a_body_that_ends_by_closing_look_whole(
    call: Call, door: Door, peer: HostilePeer
) -> None:
    async def first_chunk_then_close() -> bytes:
        async with call(url=peer.url("close_delimited_open")) as answer:
            got.set()
            return await read_body(answer, body_bytes_max=100, require_end=False)

    got = asyncio.Event()
    reading = asyncio.create_task(first_chunk_then_close())
    await got.wait()
    await door.aclose()
    with pytest.raises(BodyBroken):
        await reading
