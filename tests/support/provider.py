"""The proof's provider: an independent process that writes each call down before it answers.

    with ProviderProcess() as provider:
        provider.next("hang", marker="op-1")          # what the next matching call meets
        ...                                           # the product calls provider.base_url
        provider.wait_for_call("op-1")
        assert provider.count("op-1") == 1

The file of calls is the truth about physical calls: one fsynced JSON line each. The process is the
test's child, in a process group of its own, so killing the product does not touch it. It ends when
the test process ends. What can be asked of it: BEHAVIOURS in provider_answers.py (and _oddities).
"""

import base64
import contextlib
import http.client
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.support.wait import DEADLINE_SECONDS, wait_until

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 15.0
STOP_SECONDS_MAX = 3.0
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True)
class ProviderCall:
    """One line of the file: a call the provider physically received. `at` is seconds (Unix)."""

    sequence: int
    at: float
    marker: str
    method: str
    path: str
    sha256: str
    body_bytes: int
    complete: bool
    model: str
    stream: bool
    behaviour: str
    peer_port: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        """The call's body, parsed (bodies above 64 KiB are logged cut and do not parse)."""
        return json.loads(self.body)


class ProviderProcess:
    """Starts, steers, reads and ends the provider process."""

    def __init__(self, *, log: Path | None = None):
        self._own_directory = None if log else Path(tempfile.mkdtemp(prefix="provider-"))
        self.log = log or self._own_directory / "calls.jsonl"
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self.port = 0

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> "ProviderProcess":
        """Start and wait until it listens. After stop() or kill(): same port, same file."""
        command = [sys.executable, "-m", "tests.support.provider_server", "--log", str(self.log)]
        self._process = subprocess.Popen(
            [*command, "--port", str(self.port)],
            cwd=ROOT,
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._started_at = psutil.Process(self._process.pid).create_time()
        line = _first_line(self._process)
        assert " ready on http://127.0.0.1:" in line, f"the test provider did not start: {line!r}"
        self.port = int(line.rsplit(":", 1)[1])
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None, "the provider was not started"
        return self._process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """What an OpenAI client or a service row takes as its base URL."""
        return f"{self.url}/v1"

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, after making sure that the pid is still our process."""
        if self._process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            found = psutil.Process(self._process.pid)
            if found.create_time() == self._started_at:
                found.kill()
        self._process.wait()
        self._close_pipes()

    def stop(self) -> None:
        """End the process and remove a file of calls this object made. Safe to call twice."""
        if self._process is not None:
            self._close_pipes()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS_MAX)
            self.kill()
        if self._own_directory is not None:
            shutil.rmtree(self._own_directory, ignore_errors=True)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()

    def __enter__(self) -> "ProviderProcess":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # --- what it does next --------------------------------------------------------------------

    def next(
        self, behaviour: str, *, marker: str | None = None, times: int = 1, **params: Any
    ) -> None:
        """The next `times` calls (of this marker, if given) meet `behaviour` with `params`."""
        rule = {"next": behaviour, "times": times, **params}
        self._tell("/control", rule if marker is None else {**rule, "marker": marker})

    def next_bytes(
        self,
        pieces: Sequence[bytes],
        *,
        marker: str | None = None,
        content_type: str = "text/event-stream",
        end: str = "clean",
        **params: Any,
    ) -> None:
        """The next call gets exactly these bytes, each piece one HTTP chunk; see `raw`."""
        packed = [base64.b64encode(piece).decode() for piece in pieces]
        params |= {"pieces_base64": packed, "content_type": content_type, "end": end}
        self.next("raw", marker=marker, **params)

    def default(self, behaviour: str, **params: Any) -> None:
        """What every call meets that no rule, header, metadata or model name decides."""
        self._tell("/control", {"default": behaviour, **params})

    def reset(self) -> None:
        """Forget rules, default and released markers. The file of calls stays."""
        self._tell("/control", {"reset": True})

    def release(self, marker: str | None = None) -> None:
        """Let held calls go on: all held now, or this marker's, held now or later."""
        self._tell("/release", {} if marker is None else {"marker": marker})

    def state(self) -> dict[str, int]:
        """Counters: received, finished, peer_left, open (connections), running, rules."""
        return self._tell("/state", {})

    def _tell(self, path: str, value: dict[str, Any]) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", path, json.dumps(value))
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        assert answer.status == 200, body.decode()
        return json.loads(body)

    # --- what it received ---------------------------------------------------------------------

    def calls(self, marker: str | None = None) -> list[ProviderCall]:
        """Every call received so far (of this marker), in order, from the file."""
        if not self.log.exists():
            return []
        lines = self.log.read_bytes().split(b"\n")[:-1]
        every = [ProviderCall(**json.loads(line)) for line in lines]
        return [call for call in every if marker in (None, call.marker)]

    def count(self, marker: str | None = None) -> int:
        """How many calls were received (of this marker)."""
        return len(self.calls(marker))

    def wait_for_call(
        self, marker: str | None = None, deadline: float = DEADLINE_SECONDS, *, count: int = 1
    ) -> ProviderCall:
        """Wait until `count` calls (of this marker) were received; the last of them."""
        about = f"the provider received {count} call(s) of {marker or 'any operation'}"
        calls = wait_until(
            lambda: found if len(found := self.calls(marker)) >= count else None,
            deadline,
            about=about,
        )
        return calls[count - 1]


def _first_line(process: subprocess.Popen[bytes]) -> str:
    line, deadline = b"", time.monotonic() + START_SECONDS_MAX
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            break
        if not (piece := os.read(process.stdout.fileno(), 256)):
            break
        line += piece
    return line.decode(errors="replace").strip()
