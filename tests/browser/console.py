"""A real console: `manage.py standalone` in a child process on SQLite, with the demo provider."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from console.sessions import SessionStore
from tests.support.environment import SYNTHETIC, child_environment
from tests.support.owned import identity_of
from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 40.0
END_SECONDS_MAX = 30.0
CHAT = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}
NAME, PASSWORD = "admin", SYNTHETIC["BAILING_ADMIN_PASSWORD"]


class Console:
    """The running product: its address, its seeded requests by kind, its rows."""

    def __init__(self, directory: Path, *, settled_rows: int, unknowns: int):
        self._file = directory / "console.sqlite3"
        self._environment = child_environment(
            database_url=f"sqlite:///{self._file}",
            TMPDIR=str(directory),
            BAILING_DEMO="1",
            BAILING_DEMO_PORT="0",
            BAILING_LIST_PAGE_ROWS="20",
        )
        self._run("manage.py", "db_init")
        seeded = self._run("-m", "tests.browser.seed", str(settled_rows), str(unknowns))
        self.made: dict[str, str] = json.loads(seeded.splitlines()[-1])
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", "standalone", "--port", "0"],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._identity = identity_of(self._process.pid)
        self._lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.address = wait_until(
            self._said_address, START_SECONDS_MAX, about="standalone says where it listens"
        )

    def _run(self, *arguments: str) -> str:
        """Run one command in the console's environment; its output."""
        ended = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)

    def _said_address(self) -> str | None:
        assert self._process.poll() is None, self.output
        found = re.search(r"Console\s+(http://127\.0\.0\.1:\d+)/", self.output)
        return found and found.group(1)

    @property
    def output(self) -> str:
        """Everything it printed and logged so far."""
        return "".join(self._lines)

    def end(self) -> int:
        """SIGTERM; the exit code."""
        if self._process.poll() is None and identity_of(self._process.pid) == self._identity:
            os.kill(self._process.pid, signal.SIGTERM)
        try:
            return self._process.wait(END_SECONDS_MAX)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    # --- facts, read beside the console ---

    def rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows of its database."""
        with closing(sqlite3.connect(self._file, timeout=20)) as connection:
            return list(connection.execute(statement, parameters))

    def write(self, statement: str, *parameters: Any) -> None:
        """One statement behind its back: what another process, or time, would do."""
        with closing(sqlite3.connect(self._file, timeout=20)) as connection, connection:
            connection.execute(statement, parameters)

    def acts(self, request_id: str) -> list[tuple[str, str, str]]:
        """(action, actor, reason) of the acts on a request, in order."""
        return self.rows(
            "SELECT action, actor_id, reason FROM bz_audit WHERE subject = ? ORDER BY sequence",
            f"request:{request_id}",
        )

    def states(self, request_id: str) -> tuple[Any, ...]:
        """(result, billing) of a request."""
        (row,) = self.rows(
            "SELECT result_state, billing_state FROM bz_usage_requests WHERE id = ?", request_id
        )
        return row

    def let_session_idle(self, key: str) -> None:
        """Turn one session's clock: what more than the idle limit without a click would do."""
        store = SessionStore()
        ((data,),) = self.rows("SELECT session_data FROM bz_sessions WHERE session_key = ?", key)
        session = store.decode(data)
        session["seen_at"] -= 1_000_000
        self.write(
            "UPDATE bz_sessions SET session_data = ? WHERE session_key = ?",
            store.encode(session),
            key,
        )

    def add_person(self, name: str, role: str) -> str:
        """Another person of the console; their first password."""
        added = self._run("manage.py", "person", "add", name, "--role", role, "--json")
        return str(json.loads(added)["password"])

    def let_proof_age(self, name: str) -> None:
        """Turn the clock of a person's sessions: their proof of who they are is too old."""
        store = SessionStore()
        for key, data in self.rows(
            "SELECT session_key, session_data FROM bz_sessions WHERE person_id ="
            " (SELECT id FROM auth_user WHERE username = ?)",
            name,
        ):
            session = store.decode(data)
            for moment in {"started_at", "confirmed_at"} & session.keys():
                session[moment] -= 10_000
            self.write(
                "UPDATE bz_sessions SET session_data = ? WHERE session_key = ?",
                store.encode(session),
                key,
            )

    # --- what applications do ---

    def ask(self, operation_id: str, *, token: str = "") -> httpx.Response:
        """A model request, to its end."""
        return self._post("/v1/chat/completions", operation_id, CHAT, token)

    def admit(self, operation_id: str) -> str:
        """Admit a model request without sending it; its request id."""
        body = {"request": CHAT, "dispatch": False}
        answer = self._post("/usage/v1/requests", operation_id, body, "")
        assert answer.status_code == 201, answer.text
        return str(answer.json()["request_id"])

    def _post(self, path: str, operation_id: str, body: Any, token: str) -> httpx.Response:
        secret = token or self._environment["BAILING_API_TOKEN"]
        headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": operation_id}
        return httpx.post(
            self.address + path, headers=headers, json=body, timeout=30, trust_env=False
        )
