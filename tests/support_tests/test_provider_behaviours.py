"""Each behaviour of the proof's provider does what its name says."""

import gzip
import json
from pathlib import Path

import httpx
import openai
import pytest

from tests.support.provider_answers import BEHAVIOURS, USAGE
from tests.support.provider_oddities import MULTIBYTE_TEXT, split_inside_characters
from tests.support_tests.asking import MESSAGES, ask, data, usages

# --- good answers -----------------------------------------------------------------------------


def test_the_official_client_reads_plain_and_streamed_answers(provider, operation):
    with openai.OpenAI(base_url=provider.base_url, api_key="k", max_retries=0) as client:
        create = client.chat.completions.create
        plain = create(model="m", messages=MESSAGES, user=operation)
        options = {"include_usage": True}
        chunks = list(create(model="m", messages=MESSAGES, stream=True, stream_options=options))
    assert plain.usage.total_tokens == 13
    assert "test provider" in plain.choices[0].message.content
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert "test provider" in text
    assert chunks[-1].usage.completion_tokens == 4


def test_usage_is_streamed_only_when_asked_for(provider, operation):
    without = ask(provider, operation, stream=True)
    with_it = ask(provider, operation, stream=True, stream_options={"include_usage": True})
    assert (usages(without), usages(with_it)) == ([], [USAGE])


def test_two_answers_differ_and_an_id_can_be_made_to_collide(provider, operation):
    first, second = (ask(provider, operation).json() for _ in range(2))
    assert first["id"] != second["id"]
    assert first["choices"] != second["choices"]
    provider.next("answer", times=2, id="chatcmpl-213")
    assert [ask(provider, operation).json()["id"] for _ in range(2)] == ["chatcmpl-213"] * 2


def test_any_usage_can_be_reported_as_it_is(provider, operation):
    strange = {"prompt_tokens": "10", "completion_tokens": -5, "total_tokens": None}
    provider.next("answer", usage=strange, times=2)
    assert ask(provider, operation).json()["usage"] == strange
    assert usages(ask(provider, operation, stream=True)) == [strange]


def test_latency_is_waited_before_the_answer(provider, operation):
    provider.next("answer", latency_ms=150)
    assert ask(provider, operation).elapsed.total_seconds() >= 0.15


@pytest.mark.parametrize("stream", [False, True])
def test_a_slow_drip_takes_its_chunks_times_its_delay(provider, operation, stream):
    provider.next("slow_drip", chunks=10, delay_ms=20)
    answer = ask(provider, operation, stream=stream)
    assert answer.elapsed.total_seconds() >= 0.2
    assert answer.text.count("chatcmpl-test") >= 1
    if stream:
        assert len(data(answer)) == 10 + 2


def test_a_stream_may_have_hundreds_of_deltas(provider, operation):
    provider.next("no_usage", chunks=806)
    answer = ask(provider, operation, stream=True, stream_options={"include_usage": True})
    assert len(data(answer)) == 806 + 2
    assert usages(answer) == []


# --- broken connections -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ("close", "disconnected"),
        ("rst", "reset"),
        ("garbage", "illegal"),
        ("truncate_body", "peer closed"),
        ("truncate_body:rst=1", "reset"),
    ],
)
def test_a_broken_plain_answer_is_an_error_and_one_call(provider, operation, behaviour, error):
    provider.next(behaviour)
    with pytest.raises(httpx.TransportError, match=f"(?i){error}"):
        ask(provider, operation)
    assert provider.count(operation) == 1


@pytest.mark.parametrize(
    "behaviour",
    ["truncate_sse", "truncate_sse:rst=1", "bad_chunk_end", "bad_chunk_end:end=close"],
)
def test_a_stream_breaks_after_its_bytes(provider, operation, behaviour):
    provider.next(behaviour)
    body = {"model": "m", "user": operation, "messages": MESSAGES, "stream": True}
    url, seen = f"{provider.base_url}/chat/completions", b""
    with httpx.stream("POST", url, json=body) as answer, pytest.raises(httpx.TransportError):
        for piece in answer.iter_raw():
            seen += piece
    whole = behaviour.startswith("bad_chunk_end")
    assert seen.endswith(b"data: [DONE]\n\n") == whole
    assert whole or seen.count(b"data: ") == 3
    assert provider.count(operation) == 1


def test_a_cleanly_cut_stream_looks_like_success_but_has_no_end(provider, operation):
    provider.next("truncate_sse_clean", events=2)
    events = data(ask(provider, operation, stream=True))
    assert len(events) == 2
    assert "[DONE]" not in events


@pytest.mark.parametrize("stream", [False, True])
def test_a_body_may_end_with_its_connection_whole_or_cut(provider, operation, stream):
    provider.next("close_delimited")
    whole = ask(provider, operation, stream=stream)
    provider.next("close_delimited", truncated=1)
    cut = ask(provider, operation, stream=stream)
    assert "content-length" not in whole.headers
    assert whole.status_code == cut.status_code == 200
    assert len(cut.content) < len(whole.content)


# --- refusals and errors ----------------------------------------------------------------------


@pytest.mark.parametrize("code", [400, 401, 403, 404, 408, 409, 422, 429, 500, 502, 503])
def test_a_status_carries_an_error_body(provider, operation, code):
    answer = ask(provider, operation, model=f"status_{code}")
    assert answer.status_code == code
    assert str(code) in answer.json()["error"]["message"]


def test_a_refusal_may_report_usage(provider, operation):
    provider.next("status_429", usage=USAGE)
    assert ask(provider, operation).json()["usage"] == USAGE


def test_a_followed_redirect_is_a_second_call_in_the_file(provider, operation):
    provider.next("status_307", marker=operation)
    url, body = f"{provider.base_url}/chat/completions", {"model": "m", "user": operation}
    assert httpx.post(url, json=body, follow_redirects=True).status_code == 200
    assert provider.count(operation) == 2


def test_an_error_event_comes_inside_a_200(provider, operation):
    provider.next("error_event", usage=USAGE)
    events = data(ask(provider, operation, stream=True))
    assert "error" in events[-1]
    assert events[-2]["usage"] == USAGE
    provider.next("response_failed")
    assert data(ask(provider, operation, stream=True))[-1]["type"] == "response.failed"


# --- metering ---------------------------------------------------------------------------------


def test_usage_comes_in_each_strange_shape(provider, operation):
    def shape(name):
        return usages(ask(provider, operation, stream=True, model=name))

    assert shape("null_usage_first") == [None, None, USAGE]
    assert [u["total_tokens"] for u in shape("zero_usage_first")] == [0, 0, 0, 13]
    assert [u["completion_tokens"] for u in shape("cumulative_usage")] == [1, 2, 3, 4]
    assert shape("usage_under_response") == []
    assert shape("message_delta_usage") == [{"output_tokens": 15}]
    assert "usage" not in ask(provider, operation, model="no_usage").json()


def test_usage_may_be_nested_under_the_response(provider, operation):
    last = data(ask(provider, operation, stream=True, model="usage_under_response"))[-1]
    assert last["type"] == "response.completed"
    assert last["response"]["usage"]["output_tokens"] == 4


# --- bytes ------------------------------------------------------------------------------------


def test_multi_byte_characters_are_cut_between_chunks(provider, operation):
    pieces = list(split_inside_characters(MULTIBYTE_TEXT.encode()))
    assert b"".join(pieces).decode() == MULTIBYTE_TEXT
    broken = [p for p in pieces if "\ufffd" in p.decode(errors="replace")]
    assert len(broken) == len(pieces) > 15
    answer = ask(provider, operation, stream=True, model="multibyte_split")
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in data(answer)[:-1])
    assert text == MULTIBYTE_TEXT


@pytest.mark.parametrize("stream", [False, True])
def test_a_huge_body_has_the_size_asked_for(provider, operation, stream):
    answer = ask(provider, operation, stream=stream, model="huge_body:bytes=1000000")
    assert answer.text.count("y") >= 1_000_000
    assert len(answer.content) < 1_100_000


def test_gzip_comes_unasked_whole_cut_or_as_a_bomb(provider, operation):
    def packed(model, **more):
        body = {"model": model, "messages": MESSAGES, **more}
        url = f"{provider.base_url}/chat/completions"
        with httpx.stream("POST", url, json=body) as answer:
            assert answer.headers["content-encoding"] == "gzip"
            return b"".join(answer.iter_raw())

    assert json.loads(gzip.decompress(packed("gzip_body")))["usage"] == USAGE
    assert gzip.decompress(packed("gzip_body", stream=True)).endswith(b"data: [DONE]\n\n")
    with pytest.raises(EOFError):
        gzip.decompress(packed("gzip_body:truncated=1"))
    bomb = packed("gzip_body:bytes=20000000")
    assert len(bomb) < 30_000
    assert len(gzip.decompress(bomb)) > 20_000_000


def test_exact_bytes_in_exact_pieces(provider, operation):
    provider.next_bytes([b"data: \xe2\x82", b"\xac\n", b"\n"], marker=operation)
    answer = ask(provider, operation, stream=True)
    assert answer.content == "data: €\n\n".encode()
    provider.next("raw", status=200, body="<html>", content_type="text/html")
    answer = ask(provider, operation)
    assert (answer.text, answer.headers["content-type"]) == ("<html>", "text/html")


def test_an_agents_model_wants_one_call_and_is_done_with_its_answer(provider, operation):
    provider.next("agent_step", times=2, tool="refund")
    wanted = ask(provider, operation).json()["choices"][0]
    (call,) = wanted["message"]["tool_calls"]
    assert (wanted["finish_reason"], call["function"]["name"]) == ("tool_calls", "refund")
    told = [*MESSAGES, {"role": "tool", "tool_call_id": call["id"], "content": "{}"}]
    done = ask(provider, operation, messages=told).json()["choices"][0]
    assert (done["finish_reason"], done["message"]["content"]) == ("stop", "Done.")


def test_every_behaviour_is_exercised_here():
    told = "".join(p.read_text() for p in Path(__file__).parent.glob("test_provider*.py"))
    assert [name for name in BEHAVIOURS if f'"{name}' not in told and name != "status"] == []
