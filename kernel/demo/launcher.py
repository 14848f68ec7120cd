"""Starting and stopping the demo provider's process; it never outlives the one that started it."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

MODEL = "demo-1"
READY_LINE = "demo provider ready on "
START_SECONDS_MAX = 15.0
STOP_SECONDS_MAX = 3.0
_ROOT = Path(__file__).resolve().parents[2]
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")


class DemoProviderFailed(RuntimeError):
    """The demo provider's process ended, or said nothing, before it was ready."""


class DemoProvider:
    """A running demo provider: its address and its end. Use as a context manager or call stop()."""

    def __init__(self, *, process: subprocess.Popen[bytes], url: str):
        self._process = process
        self.url = url
        self.pid = process.pid

    def is_running(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process and wait for it; safe to call twice. Closing its pipe is the request."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> "DemoProvider":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def start_on_one_of(
    ports: Sequence[int], *, latency_ms: float = 0, chunk_ms: float = 0
) -> DemoProvider:
    """Start it on the first of these ports that is free. DemoProviderFailed: on none of them."""
    *others, last = ports
    for port in others:
        with suppress(DemoProviderFailed):
            return start_provider(port=port, latency_ms=latency_ms, chunk_ms=chunk_ms)
    return start_provider(port=last, latency_ms=latency_ms, chunk_ms=chunk_ms)


def start_provider(*, port: int = 0, latency_ms: float = 0, chunk_ms: float = 0) -> DemoProvider:
    """Start the demo provider on 127.0.0.1 (port 0: a free one) and wait until it listens.

    Its environment holds no key of ours. Raises DemoProviderFailed, e.g. when the port is taken.
    """
    command = [sys.executable, "-m", "kernel.demo", "--exit-with-parent"]
    command += ["--port", str(port), "--latency-ms", str(latency_ms), "--chunk-ms", str(chunk_ms)]
    process = subprocess.Popen(
        command,
        cwd=_ROOT,
        env={name: os.environ[name] for name in _INHERITED if name in os.environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        # Ctrl-C goes to the whole group; the provider must outlive the drain of its caller.
        start_new_session=True,
    )
    line = _first_line(process)
    provider = DemoProvider(process=process, url=line.removeprefix(READY_LINE))
    if not line.startswith(READY_LINE):
        provider.stop()
        raise DemoProviderFailed(f"the demo provider did not start on port {port}: {line!r}")
    return provider


def _first_line(process: subprocess.Popen[bytes]) -> str:
    """The first line the process prints, or what there was of it when the time ran out."""
    assert process.stdout is not None
    out, line = process.stdout.fileno(), b""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([out], [], [], left)[0]:
            break
        piece = os.read(out, 256)
        if not piece:
            break
        line += piece
    return line.decode(errors="replace").strip()
