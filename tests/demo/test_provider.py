"""The demo provider: plain and streaming answers, honest counts, and an end with its parent."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import openai
import psutil
import pytest

from kernel.demo import MODEL, DemoProviderFailed, answers, start_provider
from tests.support.wait import wait_until, wait_until_async

ROOT = Path(__file__).resolve().parents[2]
HELLO = [{"role": "user", "content": "Say hello"}]


@pytest.fixture(scope="module")
def provider():
    with start_provider() as running:
        yield running


@pytest.fixture
def client(provider):
    with openai.OpenAI(base_url=f"{provider.url}/v1", api_key="any key", max_retries=0) as client:
        yield client


def post(provider, body, **keywords):
    return httpx.post(f"{provider.url}/v1/chat/completions", json=body, **keywords)


def events(text: str) -> list[str]:
    return [line.removeprefix("data: ") for line in text.split("\n\n") if line]


def test_the_official_client_gets_a_plain_answer_with_honest_counts(client):
    answer = client.chat.completions.create(model="any", messages=HELLO)
    text = answer.choices[0].message.content
    assert "Say hello" in text
    assert "no model ran" in text
    assert answer.id.startswith("chatcmpl-demo-")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == answers.prompt_tokens(HELLO) == 4
    assert answer.usage.completion_tokens == len(answers.pieces(text))
    assert answer.usage.total_tokens == 4 + answer.usage.completion_tokens


def test_the_same_messages_give_the_same_text_under_a_new_id(client):
    first, second = (client.chat.completions.create(model="m", messages=HELLO) for _ in range(2))
    assert first.choices == second.choices
    assert first.id != second.id


def test_a_stream_carries_the_plain_text_in_pieces_and_its_usage_last(client):
    plain = client.chat.completions.create(model="m", messages=HELLO)
    options = {"include_usage": True}
    with client.chat.completions.create(
        model="m", messages=HELLO, stream=True, stream_options=options
    ) as stream:
        chunks = list(stream)
    parts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(parts) == plain.choices[0].message.content
    assert len([part for part in parts if part]) > 5
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage == plain.usage


def test_a_stream_without_the_option_has_no_usage_and_ends_with_done(provider):
    answer = post(provider, {"model": "m", "messages": HELLO, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, last = events(answer.text)
    assert last == "[DONE]"
    assert all("usage" not in json.loads(chunk) for chunk in chunks)
    assert json.loads(chunks[-1])["choices"][0]["finish_reason"] == "stop"


def test_max_tokens_cuts_the_answer_and_says_length(client):
    answer = client.chat.completions.create(model="m", messages=HELLO, max_tokens=7)
    assert answer.usage.completion_tokens == 7
    assert len(answers.pieces(answer.choices[0].message.content)) == 7
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"messages": HELLO},
        {"model": "m"},
        {"model": "m", "messages": []},
        {"model": "m", "messages": ["text"]},
        {"model": "m", "messages": [{"role": "user", "content": 5}]},
        {"model": "m", "messages": HELLO, "max_tokens": 0},
        {"model": "m", "messages": HELLO, "max_tokens": "7"},
        {"model": "m", "messages": HELLO, "n": 2},
    ],
)
def test_a_request_it_cannot_answer_is_a_400_that_says_why(provider, body):
    answer = post(provider, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_models_health_and_unknown_paths(provider, client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert httpx.get(f"{provider.url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{provider.url}/v1/elsewhere").status_code == 404


def test_it_listens_on_the_loopback_address_only(provider):
    listening = [
        c.laddr.ip
        for c in psutil.Process(provider.pid).net_connections()
        if c.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]


def test_latency_is_waited_before_the_answer():
    with start_provider(latency_ms=200) as slow:
        answer = post(slow, {"model": "m", "messages": HELLO})
    assert answer.status_code == 200
    assert answer.elapsed.total_seconds() >= 0.2


def test_a_taken_port_is_an_error_not_a_wait(provider):
    port = int(provider.url.rsplit(":", 1)[1])
    with pytest.raises(DemoProviderFailed, match=str(port)):
        start_provider(port=port)


def test_stop_ends_the_process_and_may_be_called_twice():
    running = start_provider()
    running.stop()
    running.stop()
    assert not running.is_running()
    assert not psutil.pid_exists(running.pid)


def test_it_does_not_outlive_a_parent_that_is_killed(tmp_path):
    story = (
        "from kernel.demo import start_provider; import time\n"
        "running = start_provider(); print(running.pid, running.url, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", story], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        pid, url = parent.stdout.readline().split()
        assert httpx.get(f"{url}/healthz").status_code == 200
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    wait_until(lambda: has_ended(int(pid)), 5, about="the demo provider ended with its parent")


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_ctrl_c_in_the_terminal_leaves_the_decision_to_the_parent():
    with start_provider(latency_ms=300) as running:
        os.kill(running.pid, signal.SIGINT)
        assert post(running, {"model": "m", "messages": HELLO}).status_code == 200
        assert running.is_running()


def open_connections(pid: int) -> int:
    found = psutil.Process(pid).net_connections()
    return len([c for c in found if c.status != psutil.CONN_LISTEN])


@pytest.fixture
def many_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_thousand_streams_are_open_at_once_and_a_third_of_the_clients_may_leave(many_files):
    with start_provider(chunk_ms=300) as running:
        port = int(running.url.rsplit(":", 1)[1])
        body = json.dumps({"model": "m", "messages": HELLO, "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: demo\r\ncontent-length: {len(body)}"
        request = head.encode() + b"\r\n\r\n" + body

        async def open_one():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            await reader.readuntil(b"data: ")
            return reader, writer

        streams = await asyncio.gather(*(open_one() for _ in range(1000)))
        assert not any(reader.at_eof() for reader, _ in streams)
        assert open_connections(running.pid) == 1000
        for _, writer in streams[:300]:
            writer.close()
        endings = await asyncio.gather(
            *(reader.readuntil(b"data: [DONE]\n\n") for reader, _ in streams[300:])
        )
        assert len(endings) == 700
        assert all(b'"finish_reason":"stop"' in ending for ending in endings)
        for _, writer in streams[300:]:
            writer.close()
        await wait_until_async(lambda: open_connections(running.pid) == 0, about="all closed")
