"""The decoder's budget, its refusals, and the views with their own budgets (E1, E3)."""

import gzip
import zlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.errors import BodyBroken, BodyTooLarge
from kernel.http import read_body, view_utf8
from kernel.http.bodies import PIECE_BYTES, BodyDecoder


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACK = {
    "identity": bytes,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "raw deflate": raw_deflate,
}


def decode(encoding: str, data: bytes, *, size: int, body_bytes_max: int) -> bytes:
    decoder = BodyDecoder(encodings=[encoding.removeprefix("raw ")], body_bytes_max=body_bytes_max)
    out = bytearray()
    # At most a few hundred pieces: the cuts matter, not their number.
    size = max(size, len(data) // 300)
    for start in range(0, len(data), size):
        for piece in decoder.feed(data[start : start + size]):
            assert 0 < len(piece) <= max(PIECE_BYTES, size)
            out += piece
    decoder.finish()
    return bytes(out)


@settings(deadline=None)
@given(
    body=st.binary(max_size=3000) | st.integers(0, 200_000).map(bytes),
    size=st.integers(1, 5000),
    encoding=st.sampled_from(sorted(PACK)),
)
def test_a_body_comes_out_as_it_went_in_however_it_was_cut(
    body: bytes, size: int, encoding: str
) -> None:
    packed = PACK[encoding](body)
    assert decode(encoding, packed, size=size, body_bytes_max=len(body) + 1000) == body


@settings(deadline=None)
@given(
    bound=st.integers(0, 300_000),
    over=st.integers(1, 1000),
    encoding=st.sampled_from(sorted(PACK)),
)
def test_one_byte_over_the_budget_is_refused(bound: int, over: int, encoding: str) -> None:
    packed = PACK[encoding](bytes(bound + over))
    with pytest.raises(BodyTooLarge):
        decode(encoding, packed, size=4096, body_bytes_max=bound)


@settings(deadline=None)
@given(
    body=st.binary(min_size=1, max_size=2000),
    cut=st.integers(1, 1000),
    encoding=st.sampled_from(["gzip", "deflate", "raw deflate"]),
)
def test_compressed_data_without_its_end_is_refused(body: bytes, cut: int, encoding: str) -> None:
    packed = PACK[encoding](body)
    packed = packed[: max(1, len(packed) - cut)]
    with pytest.raises(BodyBroken):
        decode(encoding, packed, size=100, body_bytes_max=10_000)


@pytest.mark.parametrize("tail", [b"x", b"\0", gzip.compress(b"second member"), b"\x1f"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate"])
@pytest.mark.parametrize("size", [1, 10_000])
def test_bytes_behind_the_compressed_end_are_refused(tail: bytes, encoding: str, size: int) -> None:
    packed = PACK[encoding](b"body" * 100) + tail
    with pytest.raises(BodyBroken) as broken:
        decode(encoding, packed, size=size, body_bytes_max=10_000)
    assert broken.value.details["reason"] == "trailing"


@pytest.mark.parametrize(
    "encodings", [["gzip, gzip"], ["gzip", "deflate"], ["br"], ["zstd"], ["compress"], ["gzip;q=1"]]
)
def test_stacked_and_unknown_encodings_are_refused(encodings: list[str]) -> None:
    with pytest.raises(BodyBroken):
        BodyDecoder(encodings=encodings, body_bytes_max=100)


@pytest.mark.parametrize("encodings", [[], [""], ["identity"], ["Identity, identity"]])
def test_no_encoding_is_identity(encodings: list[str]) -> None:
    decoder = BodyDecoder(encodings=encodings, body_bytes_max=100)
    assert b"".join(decoder.feed(b"plain")) == b"plain"
    decoder.finish()


def test_a_plain_body_that_claims_gzip_is_broken() -> None:
    with pytest.raises(BodyBroken):
        decode("gzip", b'{"plain": true}', size=4, body_bytes_max=100)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate"])
def test_output_that_zlib_still_holds_is_not_lost(encoding: str) -> None:
    # Sizes around a full piece: all input is consumed, and a little output is still inside.
    for more in range(600):
        body = bytes(PIECE_BYTES + more)
        packed = PACK[encoding](body)
        assert decode(encoding, packed, size=len(packed), body_bytes_max=10**6) == body


def test_a_bomb_stops_inside_the_decoder() -> None:
    bomb = gzip.compress(bytes(64 * 2**20))
    decoder = BodyDecoder(encodings=["gzip"], body_bytes_max=200_000)
    out = 0
    with pytest.raises(BodyTooLarge):
        for piece in decoder.feed(bomb):
            assert len(piece) <= PIECE_BYTES
            out += len(piece)
    assert out <= 200_000


def test_compressed_bytes_that_decode_to_nothing_count_too() -> None:
    decoder = BodyDecoder(encodings=["deflate"], body_bytes_max=1000)
    with pytest.raises(BodyTooLarge):
        for _ in range(1000):
            assert not b"".join(decoder.feed(b"\x78\x9c" if _ == 0 else b"\0\0\0\xff\xff"))


async def test_over_the_budget_nothing_of_the_body_is_returned() -> None:
    class Answer:
        async def chunks(
            self, *, body_bytes_max: int, require_end: bool = True
        ) -> AsyncIterator[bytes]:
            yield b"some"
            raise BodyTooLarge("too large")

    with pytest.raises(BodyTooLarge):
        await read_body(Answer(), body_bytes_max=10)


@settings(deadline=None)
@given(text=st.text(max_size=200), bytes_max=st.integers(0, 300))
def test_a_view_is_a_prefix_within_its_budget(text: str, bytes_max: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    data = text.encode()
    for view in (view_utf8(data, bytes_max), view_utf8(text, bytes_max)):
        assert text.startswith(view.text)
        assert view.shown_bytes == len(view.text.encode()) <= bytes_max
        assert view.true_bytes == len(data)
        assert view.cut == (view.text != text)
        # Nothing shorter than the next character is left unused.
        assert view.text == text or view.shown_bytes > bytes_max - 4


@settings(deadline=None)
@given(data=st.binary(max_size=300), bytes_max=st.integers(0, 400))
def test_a_view_of_any_bytes_keeps_its_budget_and_the_true_size(
    data: bytes, bytes_max: int
) -> None:
    view = view_utf8(data, bytes_max)
    assert view.shown_bytes == len(view.text.encode()) <= bytes_max
    assert view.true_bytes == len(data)
    assert data.decode("utf-8", "replace").startswith(view.text)


def test_bytes_that_are_not_text_are_shown_as_replacement_characters() -> None:
    view = view_utf8(b"\0 \xff \xf0\x9f\x98\x80 \xe3", 100)
    assert view.text == "\0 \ufffd \U0001f600 \ufffd"
    assert (view.true_bytes, view.cut) == (10, False)


def test_a_view_of_text_with_lone_surrogates_can_be_stored() -> None:
    view = view_utf8("a\ud800b", 100)
    assert view.text == "a\ufffdb"
    view.text.encode()


def test_a_view_ends_on_a_character_border() -> None:
    view = view_utf8("日本語".encode(), 7)
    assert (view.text, view.shown_bytes, view.true_bytes, view.cut) == ("日本", 6, 9, True)
