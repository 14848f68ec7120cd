"""The product under test in its own process: `manage.py standalone` on a private schema."""

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Product:
    """A running product: where it listens, its token, its process, its start-up seconds."""

    host: str
    port: int
    token: str
    process: "subprocess.Popen[bytes]"
    ready_seconds: float

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Idempotency-Key": key}

    def memory_mib(self) -> float:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found.group(1)) / 1024 if found else 0.0

    def get(self, path: str) -> dict[str, object]:
        request = urllib.request.Request(
            f"http://{self.host}:{self.port}{path}",
            headers={"Authorization": f"Bearer {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            value: dict[str, object] = json.loads(answer.read())
            return value


def environment(url: str, directory: str, **more: str) -> dict[str, str]:
    """A clean environment: nothing of the deployment is inherited."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {
        **kept,
        "BAILING_READ_ENV_FILE": "0",
        "BAILING_DATABASE_URL": url,
        "BAILING_VAR_DIR": directory,
        "BAILING_DEMO": "1",
        "DJANGO_SECRET_KEY": secrets.token_hex(16),
        "BAILING_ADMIN_PASSWORD": secrets.token_hex(16),
        **more,
    }


@contextmanager
def running(url: str, *, latency_ms: int = 0, chunk_ms: int = 0) -> Iterator[Product]:
    """Start the product on the schema `url` ('' = embedded SQLite) and wait until it is ready."""
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="bz-bench-") as directory:
        env = environment(
            url,
            directory,
            BAILING_API_TOKEN=token,
            BAILING_DEMO_PORT=str(free_port()),
            BAILING_DEMO_LATENCY_MS=str(latency_ms),
            BAILING_DEMO_CHUNK_MS=str(chunk_ms),
        )
        manage(env, "db_init")
        port = free_port()
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "manage.py", "standalone", "--port", str(port)],
            cwd=ROOT,
            env=env,
            stdout=subprocess.DEVNULL,
        )
        try:
            _wait_until_ready(port, process)
            yield Product("127.0.0.1", port, token, process, time.monotonic() - started)
        finally:
            process.terminate()
            process.wait(60)


def manage(env: dict[str, str], *arguments: str) -> None:
    """Run one management command to its end."""
    command = [sys.executable, "manage.py", *arguments]
    subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL)


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"standalone ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.02)
    raise RuntimeError("standalone was not ready in time")
