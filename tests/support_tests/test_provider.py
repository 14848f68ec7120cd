"""The proof's provider: the file is written first, and each behaviour does what its name says."""

import gzip
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import openai
import psutil
import pytest

from tests.support.provider import ProviderProcess
from tests.support.provider_answers import BEHAVIOURS, USAGE, find
from tests.support.provider_oddities import MULTIBYTE_TEXT, split_inside_characters
from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def process():
    with ProviderProcess() as running:
        yield running


@pytest.fixture
def provider(process):
    process.reset()
    return process


@pytest.fixture
def operation(request):
    return request.node.name[:100]


def ask(provider, marker, *, stream=False, model="m", timeout=10.0, **more):
    body = {"model": model, "user": marker, "messages": MESSAGES, "stream": stream, **more}
    return httpx.post(f"{provider.base_url}/chat/completions", json=body, timeout=timeout)


def ask_in_thread(provider, marker, **keywords):
    box = {}

    def run():
        try:
            box["answer"] = ask(provider, marker, **keywords)
        except httpx.HTTPError as error:
            box["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    return thread, box


def data(answer) -> list:
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line[6:]) if line != "data: [DONE]" else "[DONE]" for line in lines]


def usages(answer) -> list:
    return [e["usage"] for e in data(answer) if isinstance(e, dict) and "usage" in e]


# --- the file of calls ------------------------------------------------------------------------


def test_each_call_is_one_line_with_its_marker_hash_and_body(provider, operation):
    before = time.time()
    answer = ask(provider, operation)
    (call,) = provider.calls(operation)
    assert answer.status_code == 200
    assert before <= call.at <= time.time()
    assert call.json["messages"] == MESSAGES
    assert call.sha256 == hashlib.sha256(answer.request.content).hexdigest()
    assert call.body_bytes == len(answer.request.content)
    assert call.path == "/v1/chat/completions"
    assert call.complete
    assert provider.count(operation) == 1
    assert answer.headers["x-request-id"] == f"req-test-{call.sequence}"


def test_the_line_is_there_before_the_first_byte_of_the_answer(provider, operation):
    provider.next("hang", marker=operation)
    thread, box = ask_in_thread(provider, operation, timeout=0.5)
    assert provider.wait_for_call(operation).behaviour == "hang"
    thread.join()
    assert isinstance(box["error"], httpx.ReadTimeout)
    assert provider.count(operation) == 1


def test_a_key_is_never_written_down(provider, operation):
    with openai.OpenAI(base_url=provider.base_url, api_key="sk-secret", max_retries=0) as client:
        client.chat.completions.create(model="m", messages=MESSAGES, user=operation)
    (call,) = provider.calls(operation)
    expected = hashlib.sha256(b"Bearer sk-secret").hexdigest()
    assert call.headers["authorization"] == f"sha256:{expected}"
    assert "sk-secret" not in provider.log.read_text()


def test_concurrent_calls_are_numbered_without_gaps(provider, operation):
    threads = [ask_in_thread(provider, operation)[0] for _ in range(16)]
    for thread in threads:
        thread.join()
    numbers = [call.sequence for call in provider.calls()]
    assert provider.count(operation) == 16
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_call_whose_body_was_cut_off_counts_too(provider):
    received = provider.count()
    with socket.create_connection(("127.0.0.1", provider.port)) as half:
        half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
    call = provider.wait_for_call(count=received + 1)
    assert (call.complete, call.body) == (False, "{")


def test_the_marker_may_come_from_the_body_a_header_or_metadata(provider, operation):
    url, body = f"{provider.base_url}/chat/completions", {"model": "m", "messages": MESSAGES}
    httpx.post(url, json={**body, "user": operation})
    httpx.post(url, json=body, headers={"X-Test-Marker": operation})
    httpx.post(url, json={**body, "metadata": {"marker": operation}})
    assert provider.count(operation) == 3


# --- choosing a behaviour ---------------------------------------------------------------------


def test_a_rule_is_used_as_often_as_it_says_and_only_for_its_marker(provider, operation):
    provider.next("status_503", marker=operation, times=2)
    codes = [ask(provider, operation).status_code for _ in range(3)]
    other = ask(provider, "other").status_code
    assert (codes, other) == ([503, 503, 200], 200)
    assert provider.state()["rules"] == 0


def test_the_model_name_a_header_or_metadata_may_choose(provider, operation):
    assert ask(provider, operation, model="status_418").status_code == 418
    assert ask(provider, operation, metadata={"behaviour": "status_404"}).status_code == 404
    url = f"{provider.base_url}/chat/completions"
    headers = {"X-Test-Behaviour": "status_403:retry_after=7"}
    answer = httpx.post(url, json={"model": "m"}, headers=headers)
    assert (answer.status_code, answer.headers["retry-after"]) == (403, "7")


def test_the_default_can_be_changed_and_is_forgotten_by_reset(provider, operation):
    provider.default("status_500")
    assert ask(provider, operation).status_code == 500
    provider.reset()
    assert ask(provider, operation).status_code == 200


def test_a_behaviour_that_does_not_exist_is_refused(provider):
    with pytest.raises(AssertionError, match=r"no such behaviour.*stream_hang_midway"):
        provider.next("explode")
    assert find("explode") is None
    assert find("status_x") is None


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


# --- silence and release ----------------------------------------------------------------------


def test_a_held_call_is_answered_when_released(provider, operation):
    provider.next("hold", marker=operation)
    thread, box = ask_in_thread(provider, operation)
    provider.wait_for_call(operation)
    assert thread.is_alive()
    provider.release()
    thread.join()
    assert box["answer"].status_code == 200


def test_a_marker_released_early_is_not_held(provider, operation):
    provider.release(operation)
    provider.next("hold", marker=operation)
    assert ask(provider, operation).status_code == 200


def test_releasing_one_marker_leaves_the_other_held(provider, operation):
    provider.default("hold")
    first, first_box = ask_in_thread(provider, f"{operation}-1")
    second, second_box = ask_in_thread(provider, f"{operation}-2")
    provider.wait_for_call(f"{operation}-1")
    provider.wait_for_call(f"{operation}-2")
    provider.release(f"{operation}-2")
    second.join()
    assert second_box["answer"].status_code == 200
    assert first_box == {}
    provider.release()
    first.join()
    assert first_box["answer"].status_code == 200


@pytest.mark.parametrize("behaviour", ["stream_hang_midway", "stream_hold_midway"])
def test_a_stream_stops_midway(provider, operation, behaviour):
    provider.next(behaviour, marker=operation, events=2)
    body = {"model": "m", "user": operation, "messages": MESSAGES, "stream": True}
    url, seen = f"{provider.base_url}/chat/completions", b""
    with httpx.stream("POST", url, json=body, timeout=0.5) as answer:
        pieces = answer.iter_raw()
        while seen.count(b"data: ") < 2:
            seen += next(pieces)
        if behaviour == "stream_hang_midway":
            provider.release()
            with pytest.raises(httpx.ReadTimeout):
                next(pieces)
        else:
            provider.release()
            seen += b"".join(pieces)
            assert seen.endswith(b"data: [DONE]\n\n")


def test_it_notices_a_caller_who_leaves_while_it_is_silent(provider, operation):
    left = provider.state()["peer_left"]
    provider.next("hang", marker=operation)
    with pytest.raises(httpx.ReadTimeout):
        ask(provider, operation, timeout=0.2)
    wait_until(lambda: provider.state()["peer_left"] == left + 1)
    wait_until(lambda: provider.state()["running"] == 0)


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


def test_every_behaviour_is_exercised_here():
    told = Path(__file__).read_text()
    assert [name for name in BEHAVIOURS if f'"{name}' not in told and name != "status"] == []


# --- the process ------------------------------------------------------------------------------


def test_it_can_be_killed_and_started_again_on_its_port_and_file():
    with ProviderProcess() as provider:
        ask(provider, "first")
        first_pid, port = provider.pid, provider.port
        provider.kill()
        with pytest.raises(httpx.ConnectError):
            ask(provider, "refused")
        provider.start()
        ask(provider, "second")
        assert (provider.port, provider.pid != first_pid) == (port, True)
        assert [(c.sequence, c.marker) for c in provider.calls()] == [(1, "first"), (2, "second")]
    assert not provider.is_running()
    assert not provider.log.exists()
    provider.stop()


def test_it_survives_the_kill_of_the_process_that_calls_it(provider, operation):
    provider.next("hold", marker=operation)
    story = (
        "import httpx, sys\n"
        "httpx.post(sys.argv[1], json={'model': 'm', 'user': sys.argv[2]}, timeout=60)"
    )
    url = f"{provider.base_url}/chat/completions"
    with subprocess.Popen([sys.executable, "-c", story, url, operation]) as caller:
        provider.wait_for_call(operation)
        os.kill(caller.pid, signal.SIGKILL)
        assert caller.wait() == -signal.SIGKILL
    assert provider.is_running()
    assert provider.count(operation) == 1


def test_it_ends_with_a_test_process_that_is_killed(tmp_path):
    story = (
        "from tests.support.provider import ProviderProcess; import pathlib, sys, time\n"
        "p = ProviderProcess(log=pathlib.Path(sys.argv[1])).start()\n"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", story, str(tmp_path / "calls.jsonl")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()

    def ended():
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    wait_until(ended, 5)
