"""A receiver of webhooks on the loopback: answers as told, and writes down what it got.

    async with Receiver(directory) as receiver:
        receiver.url("ops")                      # the path names the destination
        receiver.answers["ops"] = [503, 200]     # one per message; the last one stays
        receiver.messages("ops")                 # what arrived, in order

One line per message is in its file, on disk, before the answer is sent.
"""

import asyncio
import base64
import contextlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Message:
    """One message as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """The server. By path: `headers` adds to the answer, `hold_seconds` sleeps before it."""

    directory: Path
    answers: dict[str, list[int]] = field(default_factory=dict)
    headers: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    hold_seconds: dict[str, float] = field(default_factory=dict)
    port: int = 0
    running: dict[str, int] = field(default_factory=dict)
    most_at_once: dict[str, int] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.directory / "received.jsonl"

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def count(self) -> int:
        """How many messages arrived, cheaply."""
        return self.file.read_bytes().count(b"\n") if self.file.exists() else 0

    def messages(self, path: str = "") -> list[Message]:
        """Everything that arrived, for one path or all."""
        if not self.file.exists():
            return []
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        found = [
            Message(one["path"], one["headers"], base64.b64decode(one["body"])) for one in lines
        ]
        return [each for each in found if not path or each.path == path]

    async def __aenter__(self) -> "Receiver":
        self._tasks: set[asyncio.Task[Any]] = set()
        self._released = asyncio.Event()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    await self._one(reader, writer)
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        path = head[0].split(" ")[1].strip("/")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self._write_down(path, headers, body)
        self.running[path] = self.running.get(path, 0) + 1
        self.most_at_once[path] = max(self.most_at_once.get(path, 0), self.running[path])
        try:
            await self._hold(path)
            told = self.answers.get(path) or [200]
            status = told.pop(0) if len(told) > 1 else told[0]
            lines = [f"HTTP/1.1 {status} As told", "Content-Length: 2"]
            lines += [f"{name}: {value}" for name, value in self.headers.get(path, [])]
            writer.write("\r\n".join([*lines, "", "ok"]).encode())
            await writer.drain()
        finally:
            self.running[path] -= 1

    async def _hold(self, path: str) -> None:
        seconds = self.hold_seconds.get(path, 0.0)
        if seconds:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._released.wait()

    def release(self) -> None:
        """Answer whatever is held, now and from now on."""
        self._released.set()

    def _write_down(self, path: str, headers: dict[str, str], body: bytes) -> None:
        line = {"path": path, "headers": headers, "body": base64.b64encode(body).decode()}
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
