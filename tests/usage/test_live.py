"""What a listening client sees: whole events, the end held until it is saved (A10)."""

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.conf import override
from kernel.usage.live import Live
from tests.usage.wire import DONE, delta

TAIL = b'data: {"error": {}}\n\n'
EVENTS = [delta("a"), delta("b" * 50), delta(finish="stop")]


def given_out(live: Live) -> bytes:
    return b"".join(live._pieces)


async def heard(live: Live) -> bytes:
    return b"".join([piece async for piece in live.read()])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in itertools.pairwise(borders)]


@given(st.lists(st.integers(min_value=0, max_value=10_000), max_size=20))
def test_over_any_chunk_borders_the_end_is_held_and_released_whole(places: list[int]) -> None:
    whole = b"".join(EVENTS) + DONE
    live = Live()
    for chunk in cut(whole, places):
        live.publish(chunk)
        assert b"[DONE]" not in given_out(live)
    assert given_out(live) == b"".join(EVENTS)
    live.end(release=True)
    assert given_out(live) == whole


@given(st.integers(min_value=1, max_value=400), st.lists(st.integers(0, 400), max_size=8))
def test_wherever_a_stream_is_cut_the_tail_can_be_read(at: int, places: list[int]) -> None:
    stream = b"".join(EVENTS * 3)[:at]
    live = Live()
    for chunk in cut(stream, places):
        live.publish(chunk)
    live.end(tail=TAIL, release=False)
    out = given_out(live)
    assert out.endswith(b"\n\n" + TAIL) or out == TAIL
    assert stream.startswith(out.removesuffix(TAIL)), "nothing but whole events before it"


@pytest.mark.parametrize("ends", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_the_end_is_known_with_any_line_ends(ends: bytes) -> None:
    live = Live()
    live.publish(b"data: {}" + ends + b"data: [DONE]" + ends)
    assert given_out(live) == b"data: {}" + ends


def test_the_word_in_a_text_is_no_end() -> None:
    live = Live()
    text = delta("say data: [DONE] please") + delta("[DONE]")
    live.publish(text)
    assert given_out(live) == text


def test_an_end_without_its_blank_line_is_given_out_when_saved_only() -> None:
    for release in (True, False):
        live = Live()
        live.publish(EVENTS[0] + b"data: [DONE]")
        live.end(release=release)
        assert (b"[DONE]" in given_out(live)) is release


def test_bytes_behind_the_end_are_held_too() -> None:
    live = Live()
    live.publish(DONE)
    live.publish(b": comment\n\n")
    assert given_out(live) == b""
    live.end(release=True)
    assert given_out(live) == DONE + b": comment\n\n"


def test_an_event_over_the_limit_does_not_swallow_the_tail() -> None:
    with override(stream_event_bytes_max=1024):
        live = Live()
        live.publish(b"data: " + b"x" * 5000)
        live.end(tail=TAIL, release=False)
    assert given_out(live).endswith(b"x\n\n" + TAIL)


async def test_a_listener_hears_everything_from_the_first_byte_on() -> None:
    live = Live()
    live.publish(EVENTS[0])
    listening = asyncio.create_task(heard(live))
    await asyncio.sleep(0)
    for event in (*EVENTS[1:], DONE):
        live.publish(event)
        await asyncio.sleep(0)
    assert not listening.done()
    live.end(release=True)
    assert await listening == b"".join(EVENTS) + DONE


async def test_publishing_never_waits_for_a_slow_or_missing_listener() -> None:
    live = Live()
    for _ in range(10_000):
        live.publish(EVENTS[0])
    live.end(release=True)
    assert await heard(live) == EVENTS[0] * 10_000


async def test_what_was_read_is_let_go() -> None:
    live = Live()
    live.publish(EVENTS[0])
    live.end(release=True)
    await heard(live)
    assert given_out(live) == b""
