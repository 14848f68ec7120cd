"""The product under test in its own process: `manage.py standalone` on a private schema."""

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
# The same for each start of a run: a second start must find nothing to change.
SECRET_KEY, ADMIN_PASSWORD, TOKEN = (secrets.token_hex(16) for _ in range(3))
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

    def cpu_seconds(self) -> float:
        """Processor time the process has used, all threads."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        user, system = stat.rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def environment(url: str, directory: str, **more: str) -> dict[str, str]:
    """A clean environment: nothing of the deployment is inherited."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {
        **kept,
        "BAILING_READ_ENV_FILE": "0",
        "BAILING_DATABASE_URL": url,
        "BAILING_VAR_DIR": directory,
        "BAILING_DEMO": "1",
        "DJANGO_SECRET_KEY": SECRET_KEY,
        "BAILING_ADMIN_PASSWORD": ADMIN_PASSWORD,
        "BAILING_API_TOKEN": TOKEN,
        **more,
    }


@contextmanager
def running(
    url: str, *, directory: str = "", again: bool = False, latency_ms: int = 0, chunk_ms: int = 0
) -> Iterator[Product]:
    """Start the product on the schema `url` ('' = embedded SQLite) and wait until it is ready.

    `directory` keeps its files for a later start, which is one `again`; without one they are
    thrown away.
    """
    with tempfile.TemporaryDirectory(prefix="bz-bench-") as own:
        env = environment(
            url,
            directory or own,
            BAILING_DEMO_PORT=str(free_port()),
            BAILING_DEMO_LATENCY_MS=str(latency_ms),
            BAILING_DEMO_CHUNK_MS=str(chunk_ms),
        )
        if not again:
            manage(env, "db_init")
        port, log = free_port(), Path(own) / "standalone.log"
        started = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "standalone", "--port", str(port)],
                cwd=ROOT,
                env=env,
                stdout=output,
                stderr=output,
            )
        try:
            _wait_until_ready(port, process)
            yield Product("127.0.0.1", port, TOKEN, process, time.monotonic() - started)
        except RuntimeError as error:
            error.add_note(log.read_text(errors="replace")[-2000:])
            raise
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
