"""The proof's provider: the file is written first, it can be steered, it ends with its test."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import openai
import psutil
import pytest

from tests.support.provider import ProviderProcess
from tests.support.provider_answers import find
from tests.support.wait import wait_until
from tests.support_tests.asking import MESSAGES, ask, ask_in_thread

ROOT = Path(__file__).resolve().parents[2]

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
