"""Odd answers get the right class, and the status stays known (A7, E1, E2; delivery 85-94)."""

import pytest

from kernel.errors import BodyBroken, BodyTooLarge, OutcomeUnknown, PeerError
from kernel.http import Door, read_body
from tests.http.conftest import ANYWHERE, Call, calling, whole
from tests.support.hostile_answers import PLAIN
from tests.support.hostile_peer import HostilePeer


@pytest.mark.parametrize("name", ["gzip_ok", "deflate_ok", "deflate_raw"])
async def test_an_encoded_answer_is_decoded(call: Call, peer: HostilePeer, name: str) -> None:
    assert await whole(call, peer.url(name)) == PLAIN


async def test_a_chunked_answer_arrives_in_pieces(call: Call, peer: HostilePeer) -> None:
    async with call(url=peer.url("chunked", gap_ms=20)) as answer:
        pieces = [piece async for piece in answer.chunks(body_bytes_max=100)]
    assert pieces == [b"chunk"] * 3


@pytest.mark.parametrize(
    ("name", "method", "status"),
    [("nothing", "POST", 204), ("head_only", "HEAD", 200), ("gzip_empty_body", "GET", 200)],
)
async def test_an_answer_without_a_body_is_empty_not_broken(
    call: Call, peer: HostilePeer, name: str, method: str, status: int
) -> None:
    async with call(url=peer.url(name), method=method, content=None) as answer:
        assert answer.status == status
        assert await read_body(answer, body_bytes_max=100) == b""


@pytest.mark.parametrize(
    ("name", "error", "reason"),
    [
        ("short_body", BodyBroken, "truncated"),
        ("short_chunked", BodyBroken, "truncated"),
        ("bad_chunk", BodyBroken, "truncated"),
        ("reset_in_body", BodyBroken, "truncated"),
        ("gzip_truncated", BodyBroken, "truncated"),
        ("deflate_truncated", BodyBroken, "truncated"),
        ("gzip_trailing", BodyBroken, "trailing"),
        ("gzip_two_members", BodyBroken, "trailing"),
        ("gzip_but_plain", BodyBroken, "encoding"),
        ("stacked", BodyBroken, "encoding"),
        ("unknown_encoding", BodyBroken, "encoding"),
        ("close_delimited", BodyBroken, "ended_by_close"),
        ("http10", BodyBroken, "ended_by_close"),
        ("huge_length", BodyTooLarge, None),
        ("bomb", BodyTooLarge, None),
        ("empty_blocks", BodyTooLarge, None),
        ("endless", BodyTooLarge, None),
    ],
)
async def test_a_body_that_cannot_be_trusted_is_an_error_under_a_known_status(
    door: Door, peer: HostilePeer, name: str, error: type[PeerError], reason: str | None
) -> None:
    async with calling(door)(url=peer.url(name)) as answer:
        assert answer.status == 200
        with pytest.raises(error) as broken:
            await read_body(answer, body_bytes_max=100_000)
        assert broken.value.details.get("reason") == reason
    assert (door.busy, door.idle) == (0, 0)
    assert peer.received[name] == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("many_headers", "bad_response"),
        ("huge_header", "bad_response"),
        ("two_lengths", "bad_response"),
        ("garbage", "bad_response"),
        ("half_a_head", "bad_response"),
        ("switch", "bad_response"),
        ("reset_after_request", "connection_lost"),
        ("close_after_request", "connection_lost"),
    ],
)
async def test_a_head_that_cannot_be_read_leaves_the_outcome_unknown(
    call: Call, door: Door, peer: HostilePeer, name: str, reason: str
) -> None:
    with pytest.raises(OutcomeUnknown) as unknown:
        await whole(call, peer.url(name))
    assert unknown.value.details["reason"] == reason
    assert (door.busy, door.idle) == (0, 0)
    assert peer.received[name] == 1


async def test_a_hundred_headers_and_a_long_one_are_still_fine(
    call: Call, peer: HostilePeer
) -> None:
    async with call(url=peer.url("many_headers", count=100)) as answer:
        assert len(answer.headers) == 100
    async with call(url=peer.url("huge_header", kib=31)) as answer:
        assert len(answer.header("X-Huge") or "") == 31 * 1024


@pytest.mark.parametrize("name", ["close_delimited", "http10"])
async def test_an_end_shown_only_by_closing_can_be_accepted_and_is_flagged(
    call: Call, peer: HostilePeer, name: str
) -> None:
    async with call(url=peer.url(name)) as answer:
        assert answer.ended_by_close
        assert await read_body(answer, body_bytes_max=100, require_end=False)
    async with call(url=peer.url("ok")) as answer:
        assert not answer.ended_by_close


async def test_a_length_over_the_budget_is_refused_before_the_body_is_read(
    call: Call, peer: HostilePeer
) -> None:
    # The peer sends no body at all: only the header can be the reason.
    async with call(url=peer.url("huge_length")) as answer:
        with pytest.raises(BodyTooLarge):
            await anext(answer.chunks(body_bytes_max=1000))


async def test_what_fits_is_delivered_before_the_budget_ends_the_stream(
    call: Call, peer: HostilePeer
) -> None:
    seen = 0
    async with call(url=peer.url("endless")) as answer:
        with pytest.raises(BodyTooLarge):
            async for piece in answer.chunks(body_bytes_max=500_000):
                seen += len(piece)
    assert 400_000 < seen <= 500_000


async def test_a_body_of_exactly_the_budget_is_whole(call: Call, peer: HostilePeer) -> None:
    assert len(await whole(call, peer.url("ok", size=1000), body_bytes_max=1000)) == 1000
    with pytest.raises(BodyTooLarge):
        await whole(call, peer.url("ok", size=1001), body_bytes_max=1000)


async def test_a_redirect_is_an_answer_and_is_not_followed(call: Call, peer: HostilePeer) -> None:
    async with call(url=peer.url("redirect"), headers=[("Authorization", "Bearer k")]) as answer:
        assert (answer.status, answer.header("Location")) == (307, "/ok")
    assert (peer.received["redirect"], peer.received["ok"]) == (1, 0)


async def test_a_cookie_is_not_kept_for_the_next_call(call: Call, peer: HostilePeer) -> None:
    await whole(call, peer.url("cookie"))
    await whole(call, peer.url("ok"))
    assert peer.requests[1].header("cookie") is None


async def test_a_body_is_read_once(call: Call, peer: HostilePeer) -> None:
    async with call(url=peer.url("ok")) as answer:
        assert await read_body(answer, body_bytes_max=10) == b"xx"
        with pytest.raises(RuntimeError):
            await read_body(answer, body_bytes_max=10)


async def test_environment_proxies_and_netrc_change_nothing(
    stack: str, peer: HostilePeer, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login evil password evil\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    door = Door(stack=stack)
    async with door.call(
        method="GET",
        url=peer.url("ok"),
        policy=ANYWHERE,
        deadline_seconds=5,
        read_seconds=5,
        connect_seconds=5,
    ) as answer:
        assert answer.status == 200
    assert peer.requests[0].header("authorization") is None
    await door.aclose()
