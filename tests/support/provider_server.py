"""The test provider's process: one fsynced line for each call, then the behaviour it was told.

Run as `python -m tests.support.provider_server --log FILE`; tests use ProviderProcess. Without a
word from a test it answers plainly. Paths /control, /release and /state belong to the test and are
not logged; every other request is a call.
"""

import argparse
import asyncio
import hashlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from tests.support import provider_oddities  # noqa: F401 - registers its behaviours
from tests.support.provider_answers import BEHAVIOURS, find
from tests.support.provider_wire import HEAD_BYTES_MAX, PeerLeft, ReceivedCall, Wire, read_call

LOGGED_BODY_BYTES_MAX = 64 * 1024
READY = "test provider ready on "


class CallLog:
    """Appends one line per call and returns when it is on the disk; waiting calls share a sync."""

    def __init__(self, path: Path):
        self.lines = path.read_bytes().count(b"\n") if path.exists() else 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._synced, self._lock = self.lines, asyncio.Lock()

    async def append(self, call: ReceivedCall, facts: dict[str, Any]) -> None:
        self.lines += 1
        call.sequence = mine = self.lines
        os.write(self._file, json.dumps({"sequence": mine, **facts}).encode() + b"\n")
        async with self._lock:
            if self._synced < mine:
                upto = self.lines
                await asyncio.to_thread(os.fsync, self._file)
                self._synced = upto


class Provider:
    """Rules, holds and counters of the process."""

    def __init__(self, log: CallLog):
        self._log = log
        self._default: dict[str, Any] = {"next": "answer"}
        self._rules: list[dict[str, Any]] = []
        self._held: list[ReceivedCall] = []
        self._released_markers: set[str] = set()
        self._counts = {"received": 0, "finished": 0, "peer_left": 0, "open": 0, "running": 0}

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        self._counts["open"] += 1
        try:
            while not wire.over and (call := await read_call(reader)):
                if call.path in ("/control", "/release", "/state"):
                    await self._told(call, wire)
                else:
                    await self._called(call, wire, writer.get_extra_info("peername")[1])
        except (PeerLeft, ConnectionError):
            self._counts["peer_left"] += 1
        finally:
            self._counts["open"] -= 1
            writer.close()

    async def _called(self, call: ReceivedCall, wire: Wire, peer_port: int) -> None:
        behave, params, name = self._choose(call)
        self._held.append(call)
        if call.marker and call.marker in self._released_markers:
            call.release.set()
        self._counts["received"] += 1
        self._counts["running"] += 1
        try:
            await self._log.append(call, _facts(call, name, peer_port))
            wire.request_id = f"req-test-{call.sequence}"
            if not call.complete:
                raise PeerLeft
            await asyncio.sleep(params.get("latency_ms", 0) / 1000)
            await behave(call, wire, params)
            self._counts["finished"] += 1
        finally:
            self._counts["running"] -= 1
            self._held.remove(call)

    def _choose(self, call: ReceivedCall) -> tuple[Any, dict[str, Any], str]:
        """A waiting rule first, then the header, metadata, the model name, the default."""
        rule = next((r for r in self._rules if r.get("marker") in (None, call.marker)), None)
        if rule is not None:
            rule["times"] -= 1
            if rule["times"] == 0:
                self._rules.remove(rule)
        asked = (
            call.headers.get("x-test-behaviour"),
            call.metadata.get("behaviour"),
            call.model,
        )
        for chosen in (rule, *({"next": name} for name in asked if name), self._default):
            if chosen and (found := find(str(chosen["next"]))):
                behave, params = found
                return behave, {**params, **chosen}, str(chosen["next"])
        raise AssertionError("the default behaviour exists")

    async def _told(self, call: ReceivedCall, wire: Wire) -> None:
        said = call.json
        if call.path == "/state":
            await wire.whole(200, json.dumps({**self._counts, "rules": len(self._rules)}).encode())
            return
        if call.path == "/release":
            self._release(said.get("marker"))
        elif said.get("reset"):
            self._rules.clear()
            self._default = {"next": "answer"}
            self._released_markers.clear()
        elif find(str(said.get("next") or said.get("default"))) is None:
            names = ", ".join(sorted(BEHAVIOURS))
            await wire.whole(400, f"no such behaviour; there are: {names}".encode())
            return
        elif "default" in said:
            self._default = {**said, "next": said["default"]}
        else:
            self._rules.append({"times": 1, **said})
        await wire.whole(200, b"{}")

    def _release(self, marker: str | None) -> None:
        """Without a marker: every call held now. With one: its held and its later calls."""
        if marker is not None:
            self._released_markers.add(marker)
        for call in self._held:
            if marker in (None, call.marker):
                call.release.set()


def _facts(call: ReceivedCall, behaviour: str, peer_port: int) -> dict[str, Any]:
    headers = dict(call.headers)
    if "authorization" in headers:
        digest = hashlib.sha256(headers["authorization"].encode()).hexdigest()
        headers["authorization"] = f"sha256:{digest}"
    return {
        "at": time.time(),
        "marker": call.marker,
        "method": call.method,
        "path": call.path,
        "sha256": hashlib.sha256(call.body).hexdigest(),
        "body_bytes": len(call.body),
        "complete": call.complete,
        "model": call.model,
        "stream": call.stream,
        "behaviour": behaviour,
        "peer_port": peer_port,
        "headers": headers,
        "body": call.body[:LOGGED_BODY_BYTES_MAX].decode("utf-8", "backslashreplace"),
    }


async def serve(options: argparse.Namespace) -> None:
    provider = Provider(CallLog(options.log))
    server = await asyncio.start_server(
        provider.connection, "127.0.0.1", options.port, limit=HEAD_BYTES_MAX, backlog=2048
    )
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, lambda: os.read(0, 4096) or ended.set())
    port = server.sockets[0].getsockname()[1]
    print(f"{READY}http://127.0.0.1:{port}", flush=True)
    await ended.wait()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
