"""manage.py standalone: its exit codes, and requests that never finish (E5, G3, G4)."""

import os
import re
import signal
import socket
import threading
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from kernel.management.commands.standalone import Command, _only_one
from kernel.models import Request
from tests.management.running import run_process, start
from tests.support.fixtures import provider, provider_process, shop
from tests.support.product import CHAT, chat_body, make_token
from tests.support.provider import ProviderProcess
from tests.support.wait import wait_until

__all__ = ["provider", "provider_process", "shop"]

HURRY = {
    "BAILING_DEMO": "0",
    "BAILING_CLOSE_BUDGET_SECONDS": "1",
    "BAILING_REQUEST_HEAD_SECONDS": "1",
    "BAILING_REQUEST_BODY_SECONDS": "1",
}


class Standalone:
    """The command on a free port; what it prints is read along."""

    def __init__(self, folder: Path):
        self.process = start("standalone", "--port", "0", folder=folder, **HURRY)
        self.said: list[str] = []
        self.complained: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.said)),
            threading.Thread(target=self._read, args=(self.process.stderr, self.complained)),
        ]
        for reader in self._readers:
            reader.start()
        self.port = wait_until(self._listening, 60, about="standalone listens")

    @staticmethod
    def _read(pipe: Iterable[str], lines: list[str]) -> None:
        lines.extend(pipe)

    def _listening(self) -> int:
        """Its port; 0 until it says so."""
        assert self.process.poll() is None, "".join(self.complained)
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", "".join(self.said))
        return int(found[1]) if found else 0

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal; exit code, stdout and stderr."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(60)
        for reader in self._readers:
            reader.join(10)
        return code, "".join(self.said), "".join(self.complained)


@pytest.fixture
def standalone(shop: ProviderProcess, tmp_path: Path) -> Iterator[Standalone]:
    """Running, with the account `acme` and the service `gpt`."""
    running = Standalone(tmp_path)
    yield running
    running.end(signal.SIGKILL)


def chat(token: str, *, sent: bytes | None = None, marker: str = "op-1") -> bytes:
    """The bytes of a POST whose body may be cut."""
    body = chat_body(marker=marker)
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Idempotency-Key: {marker}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + (body if sent is None else sent)


def test_a_close_within_its_budget_ends_with_zero(standalone: Standalone, tmp_path: Path) -> None:
    (lock,) = tmp_path.rglob("standalone.lock")
    assert lock.read_text() == f"{standalone.process.pid}\n", "who wants to end it can read it"
    code, said, complained = standalone.end()
    assert (code, complained) == (0, "")
    assert "Closed cleanly" in said
    assert lock.read_text() == "", "its number may be another process's by now"


def test_a_close_that_ran_out_of_its_budget_ends_with_three_and_names_what_is_left(
    standalone: Standalone, shop: ProviderProcess
) -> None:
    shop.default("hang")
    with standalone.connect() as client:
        client.sendall(chat(make_token()))
        shop.wait_for_call("op-1", 30)
        code, said, complained = standalone.end()
    assert code == 3
    # On a slow machine the look at the database that waits with it may be named as well.
    assert re.search(r"close budget of 1 s ran out; left: (1 \w+, )*1 generation\.", complained)
    assert "Traceback" not in complained
    assert "Closed cleanly" not in said
    assert Request.objects.get().result_state == "dispatched"


@pytest.mark.parametrize("cut", ["head", "body"])
def test_a_request_that_is_half_sent_is_ended_in_time_and_admits_nothing(
    standalone: Standalone, shop: ProviderProcess, cut: str
) -> None:
    token = make_token()
    half = chat(token)[:40] if cut == "head" else chat(token, sent=b'{"model":')
    with standalone.connect() as client:
        client.sendall(half)
        answer = client.recv(65536)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert client.recv(65536) == b""
    assert not Request.objects.exists()
    with standalone.connect() as client:
        client.sendall(chat(token))
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_signal_in_the_first_second_is_a_clean_exit(
    shop: ProviderProcess, tmp_path: Path
) -> None:
    with start("standalone", "--port", "0", folder=tmp_path, **HURRY) as child:
        # Python itself has begun when it has opened the file of the command line.
        wait_until(lambda: _catches(child.pid, signal.SIGTERM), 30, about="it listens for signals")
        child.send_signal(signal.SIGTERM)
        _, complained = child.communicate(timeout=60)
    assert (child.returncode, complained) == (0, "")


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def test_a_second_one_names_the_first(settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR = tmp_path
    said = f"as process {os.getpid()}: end it .* BAILING_VAR_DIR"
    with _only_one(), pytest.raises(CommandError, match=said), _only_one():
        pass
    assert (tmp_path / "standalone.lock").read_text() == ""
    with _only_one():
        assert (tmp_path / "standalone.lock").read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("port", ["99999", "-1", "x"])
def test_a_port_out_of_range_is_one_sentence(tmp_path: Path, port: str) -> None:
    answer = run_process("standalone", f"--port={port}", folder=tmp_path, **HURRY)
    assert answer.code and "a port is a whole number from 0 to 65535" in answer.error
    assert "Traceback" not in answer.error


@pytest.mark.parametrize("asks", [True, False])
def test_the_banner_names_the_demos_question_only_while_it_is_open(asks: bool) -> None:
    out = StringIO()
    Command(stdout=out)._welcome("http://127.0.0.1:1", demo_url="http://127.0.0.1:2", asks=asks)
    assert ("/approvals/    the demo's refund is decided there" in out.getvalue()) == asks
    assert "curl -s -w '\\n' http://127.0.0.1:1/v1/chat/completions" in out.getvalue()
