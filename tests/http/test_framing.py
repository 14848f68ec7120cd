"""Where an answer begins and ends; what is unclear is refused or not kept (A5, E1)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kernel.errors import BodyBroken, OutcomeUnknown
from kernel.http import Door
from tests.http.conftest import Call, whole

OK = b"HTTP/1.1 200 OK\r\n"
BOTH = OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


@asynccontextmanager
async def answering(*pieces: bytes) -> AsyncIterator[str]:
    """A peer that answers each request with these pieces, a moment apart, and stays open."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"{}"):
                for piece in pieces:
                    writer.write(piece)
                    await asyncio.sleep(0.01)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


def one_by_one(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK + b"Content-Length: 2\r\n\r\nok", b"ok"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n", b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 204 None\r\n\r\n", b""),
    ],
)
async def test_an_answer_is_the_same_however_its_bytes_are_cut(
    call: Call, door: Door, answer: bytes, body: bytes, cut: bool
) -> None:
    async with answering(*(one_by_one(answer) if cut else [answer])) as url:
        for _ in range(2):
            assert await whole(call, url) == body
        assert (door.idle, door.busy) == (1, 0)


async def test_trailers_and_interim_heads_are_no_headers_of_the_answer(call: Call) -> None:
    interim = b"HTTP/1.1 103 Early\r\nX-Early: 1\r\n\r\n"
    answer = b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Late: 1\r\n\r\n"
    async with answering(interim + OK + answer) as url, call(url=url) as found:
        assert [name for name, _ in found.headers] == ["transfer-encoding"]


async def test_with_a_length_and_chunks_the_chunks_win_and_the_connection_goes(
    call: Call, door: Door
) -> None:
    async with answering(BOTH) as url:
        assert await whole(call, url) == b"ok"
        assert (door.idle, door.busy) == (0, 0)


@pytest.mark.parametrize(
    "head",
    [
        b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: identity\r\n\r\n",
        b"Content-Length: +2\r\n\r\nok",
        b"Content-Length: 2, 2\r\n\r\nok",
        b"Content-Length : 2\r\n\r\nok",
        b"X: " + b"a" * 200_000,
    ],
)
async def test_a_head_that_frames_the_body_unclearly_is_refused(
    call: Call, door: Door, head: bytes
) -> None:
    async with answering(OK + head) as url:
        with pytest.raises(OutcomeUnknown) as unknown:
            await whole(call, url)
        assert unknown.value.details["reason"] == "bad_response"
        assert (door.idle, door.busy) == (0, 0)


@pytest.mark.parametrize("behind", [b"H", b"HTTP/1.1 200 OK\r\n\r\n", b"x", b"\0"])
async def test_a_connection_with_bytes_behind_the_answer_is_not_used_again(
    call: Call, door: Door, behind: bytes
) -> None:
    async with answering(OK + b"Content-Length: 2\r\n\r\nok" + behind) as url:
        assert await whole(call, url) == b"ok"
        assert (door.idle, door.busy) == (0, 0)


@pytest.mark.parametrize("endless", [b"1;x=", b"0\r\nX: "])
async def test_bytes_that_bring_no_body_have_a_bound(call: Call, endless: bytes) -> None:
    head = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    async with answering(head + endless, b"a" * 200_000) as url:
        with pytest.raises(BodyBroken):
            await whole(call, url)
