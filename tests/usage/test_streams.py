"""Streams: the same facts out of any chunking; the hidden chunk gone, every other byte kept."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.conf import conf, override
from kernel.usage.sse import EventSplitter, split_events
from kernel.usage.streams import StreamReader, StreamSummary, UsageChunkFilter

USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
DONE = b"data: [DONE]\n\n"


def event(value: object, *, end: str = "\n\n", name: str = "") -> bytes:
    head = f"event: {name}{end[: len(end) // 2]}" if name else ""
    return (head + "data: " + json.dumps(value, ensure_ascii=False) + end).encode()


def delta(text: str = "x", *, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": finish}
    return event({"id": "c-1", "model": "m-1", "choices": [choice], **more})


def usage_chunk(usage: object = USAGE) -> bytes:
    return event({"id": "c-1", "choices": [], "usage": usage})


def read(*chunks: bytes, choices: int = 1) -> StreamSummary:
    reader = StreamReader(choices=choices)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


def hide(chunks: Iterable[bytes], *, hidden: bool = True) -> bytes:
    kept = UsageChunkFilter(hidden)
    return b"".join([*map(kept.feed, chunks), kept.finish()])


def every_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


WHOLE = delta() + delta(finish="stop") + usage_chunk() + DONE


# --- reading ----------------------------------------------------------------------------------


def test_a_whole_stream_tells_usage_id_model_and_its_end():
    found = read(WHOLE)
    assert (found.terminal, found.error) == (True, None)
    assert (found.provider_request_id, found.model) == ("c-1", "m-1")
    assert found.metering.meters == {"input": 9, "output": 4}
    assert found.metering.reason is None


def test_done_without_usage_is_no_usage():
    found = read(delta() + DONE)
    assert (found.terminal, found.metering.reason) == (True, "no_usage")


def test_a_finish_reason_is_an_end_even_without_done():
    assert read(delta(finish="length")).terminal
    assert not read(delta(), delta()).terminal


def test_with_several_choices_each_must_finish():
    first, second = delta(finish="stop"), delta(finish="stop", index=1)
    assert not read(first, choices=2).terminal
    assert not read(first, first, choices=2).terminal
    assert read(first, second, choices=2).terminal
    assert read(first, DONE, choices=2).terminal


def test_a_cut_stream_is_not_terminal_and_has_no_usage():
    found = read(WHOLE[: len(delta()) + 20])
    assert (found.terminal, found.metering.reason) == (False, "no_usage")


def test_a_report_in_the_middle_of_a_cut_stream_is_partial_but_kept():
    found = read(delta(usage={**USAGE, "completion_tokens": 1, "total_tokens": 10}), delta())
    assert (found.terminal, found.metering.reason) == (False, "partial_usage")
    assert found.metering.meters == {"input": 9, "output": 1}


def test_a_report_after_the_finish_is_final_although_the_end_is_lost():
    found = read(delta(finish="stop"), usage_chunk())
    assert (found.terminal, found.metering.reason) == (True, None)


def test_a_report_before_an_error_event_is_what_was_used():
    found = read(delta(usage=USAGE), event({"error": {"message": "broke", "type": "server_error"}}))
    assert found.error == "broke"
    assert (found.metering.meters, found.metering.reason) == ({"input": 9, "output": 4}, None)


@pytest.mark.parametrize(
    "data",
    [
        event({"error": {"message": "broke"}}),
        event({"type": "error", "error": {"type": "broke"}}, name="error"),
        event({"message": "broke"}, name="error"),
        event({"type": "error", "message": "broke"}),
        event({"type": "response.failed", "response": {"error": {"message": "broke"}}}),
        b"event: error\ndata: broke\n\n",
    ],
)
def test_every_kind_of_error_event_is_seen(data: bytes):
    for chunks in ([delta() + data], [delta(), data], every_byte(delta() + data)):
        assert read(*chunks).error == "broke"


def test_a_null_error_and_the_word_error_in_a_text_are_no_error():
    assert read(delta('"error": {"message": "x"}', error=None), DONE).error is None


def test_an_incomplete_response_has_ended_without_an_error():
    usage = {"input_tokens": 9, "output_tokens": 4}
    response = {"id": "r-1", "error": None, "usage": usage}
    found = read(event({"type": "response.incomplete", "response": response}))
    assert (found.terminal, found.error) == (True, None)
    assert found.metering.meters == {"input": 9, "output": 4}


def test_output_that_shrinks_between_reports_is_inconsistent_not_cheaper():
    zero = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    found = read(delta(finish="stop", usage=USAGE), usage_chunk(zero), DONE)
    assert found.metering.reason == "inconsistent_usage"


def test_a_report_that_cannot_be_read_is_not_replaced_by_an_older_one():
    broken = b'data: {"choices":[],"usage":{"prompt_tokens":9,}}\n\n'
    assert read(delta(usage=USAGE), broken, DONE).metering.reason == "unreadable_usage"
    assert read(broken, usage_chunk(), DONE).metering.reason is None
    assert read(delta(), broken, DONE).metering.reason == "no_usage"


def test_the_tier_of_the_answer_is_taken_from_the_stream():
    found = read(delta(service_tier="auto"), delta(finish="stop", service_tier="default"), WHOLE)
    assert found.metering.service_tier == "default"


def test_multi_line_data_comments_and_a_byte_order_mark_are_understood():
    body = json.dumps({"choices": [], "usage": USAGE}, indent=1).encode()
    lines = b"\n".join(b"data:" + line for line in body.splitlines())
    stream = b"\xef\xbb\xbf: hello\nid: 7\n" + delta() + lines + b"\n\n" + DONE
    assert read(*every_byte(stream)).metering.meters == {"input": 9, "output": 4}


def test_a_last_event_without_its_blank_line_counts_when_it_is_whole():
    found = read(delta(finish="stop"), usage_chunk().rstrip(b"\n"))
    assert found.metering.meters == {"input": 9, "output": 4}
    assert not read(delta(), b'data: {"choices":[{"finish_reason":"stop"').terminal


def test_a_usage_word_in_a_text_is_no_usage():
    found = read(delta('"usage": {"prompt_tokens": 1, "completion_tokens": 1}'), DONE)
    assert found.metering.reason == "no_usage"


def test_a_gemini_stream_is_read_to_its_last_snapshot():
    def chunk(out: int | None, finish: str | None) -> bytes:
        meta = {"promptTokenCount": 5, "totalTokenCount": 5 + (out or 0)}
        candidate = {"content": {"parts": []}, "finishReason": finish}
        if out is not None:
            meta["candidatesTokenCount"] = out
        return event({"responseId": "g", "candidates": [candidate], "usageMetadata": meta})

    found = read(chunk(None, None), chunk(3, None), chunk(8, "STOP"))
    assert (found.terminal, found.metering.meters) == (True, {"input": 5, "output": 8})
    assert found.provider_request_id == "g"


def test_changes_of_a_messages_usage_are_merged_field_by_field():
    start = {"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 7}
    changed = {"output_tokens": 15, "cache_read_input_tokens": None}
    found = read(
        event({"type": "message_start", "message": {"id": "m", "usage": start}}),
        event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": changed}),
        event({"type": "message_stop"}),
    )
    assert found.metering.meters == {"input": 25, "input_cached": 7, "output": 15}
    assert json.loads(found.metering.raw_text) == {**start, "output_tokens": 15}


def test_an_event_over_the_limit_is_skipped_and_makes_an_older_report_unsure():
    with override(stream_event_bytes_max=1024):
        huge = delta("y" * 2000)
        for chunks in ([huge], every_byte(huge)):
            assert read(*chunks, DONE).metering.reason == "no_usage"
            assert read(delta(usage=USAGE), *chunks, DONE).metering.reason == "unreadable_usage"
            assert read(*chunks, usage_chunk(), DONE).metering.reason is None


def test_memory_stays_at_one_event_whatever_comes():
    with override(stream_event_bytes_max=4096):
        splitter = EventSplitter()
        for _ in range(2000):
            splitter.push(b"x" * 1000)
            assert len(splitter._held) <= 4096 + 1000
        assert splitter.oversize


# --- hiding the usage chunk -------------------------------------------------------------------


def test_only_the_usage_chunk_is_hidden():
    expected = delta() + delta(finish="stop") + DONE
    assert hide([WHOLE]) == expected
    assert hide(every_byte(WHOLE)) == expected
    assert hide([WHOLE], hidden=False) == WHOLE


@pytest.mark.parametrize(
    "kept",
    [
        event({"choices": [], "usage": None, "prompt_filter_results": []}),
        event({"choices": [], "prompt_filter_results": []}),
        delta(usage=None),
        delta(usage=USAGE),
        delta(more={"choices": []}, usage=USAGE),
        event({"choices": [], "usage": USAGE, "error": {"message": "broke"}}),
        b'data: {"choices":[],"usage":{"prompt_tokens":9\n\n',
        b": keep-alive\n\n",
        b"\n\r\n\r",
        b"data: \xff\xfe\n\n",
        b"no colon at all\n\n",
    ],
)
def test_every_other_event_passes_byte_for_byte(kept: bytes):
    assert hide([kept]) == kept
    assert hide(every_byte(kept)) == kept
    assert hide([DONE + kept + usage_chunk() + kept]) == DONE + kept + kept


def test_a_whole_event_is_passed_on_at_once():
    kept = UsageChunkFilter(True)
    first = delta("日本")
    assert kept.feed(first[:30]) == b""
    assert kept.feed(first[30:]) == first
    assert kept.feed(usage_chunk() + DONE) == DONE
    assert kept.finish() == b""


def test_line_ends_between_events_are_passed_on_at_once_and_never_hidden():
    kept = UsageChunkFilter(True)
    assert kept.feed(delta() + b"\n\r") == delta() + b"\n\r"
    assert kept.feed(b"\n" + usage_chunk().rstrip()) == b"\n"
    assert kept.finish() == b""


def test_a_cut_event_is_passed_on_at_the_end():
    kept = UsageChunkFilter(True)
    assert kept.feed(delta() + b'data: {"cho') == delta()
    assert kept.finish() == b'data: {"cho'


def test_a_huge_event_streams_through_the_filter():
    with override(stream_event_bytes_max=1024):
        kept = UsageChunkFilter(True)
        assert kept.feed(b"data: " + b"y" * 2000) == b"data: " + b"y" * 2000
        assert kept.feed(b"yy") == b"yy"
        assert kept.feed(b"\n\n" + usage_chunk()) == b"\n\n"


# --- any chunking -----------------------------------------------------------------------------


fragments = st.sampled_from(
    [
        delta("日本語 🙂"),
        delta(finish="stop"),
        delta(usage=None),
        delta(usage={"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}),
        delta("y" * 1500),
        usage_chunk(),
        usage_chunk().rstrip(),
        usage_chunk(None),
        usage_chunk({"prompt_tokens": -1}),
        event({"choices": [], "usage": USAGE}, end="\r\n\r\n"),
        event({"choices": [], "usage": USAGE}, end="\r\r"),
        event({"choices": [], "usage": USAGE, "padding": "z" * 1200}),
        event({"error": {"message": "broke"}}),
        event({"type": "message_start", "message": {"usage": {"input_tokens": 1}}}),
        event({"type": "message_delta", "usage": {"output_tokens": 7}}),
        b"data: [DONE]\r\n\r\n",
        b"\xef\xbb\xbf",
        b"data: {\xe6\x97",
        b": ping\n\n",
        b"\n",
        b"\r",
        b"\r\n",
        b"data:",
        DONE,
    ]
)


@given(parts=st.lists(fragments, max_size=12), data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_chunking_gives_the_same_summary_and_the_same_filtered_bytes(
    parts: list[bytes], data: st.DataObject
):
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    with override(stream_event_bytes_max=1024):
        assert read(*pieces) == read(stream) == read(*every_byte(stream))
        assert hide(pieces) == hide([stream]) == hide(every_byte(stream))
        assert hide(pieces, hidden=False) == stream


@given(stream=st.binary(max_size=300) | st.text("\r\nxd:a ", max_size=60).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_nothing_is_lost_or_changed_on_the_way(stream: bytes):
    splitter = EventSplitter()
    parts = [piece.data for chunk in every_byte(stream) for piece in splitter.push(chunk)]
    assert b"".join([*parts, splitter.rest()]) == stream
    assert b"".join(split_events(stream)) == stream
    assert hide(every_byte(stream)) == stream
    read(stream)


def test_limits_are_the_ones_of_the_table():
    assert EventSplitter()._limit == conf.stream_event_bytes_max
