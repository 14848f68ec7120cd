"""Chat services through the package `apprise`, where it is installed (F7).

It brings its own network code, so it runs in a process of its own (`chat_process`): there the
address policy is asked before each connect, as at our own door (E6), and what hangs is killed at
the deadline. That process gets nothing of our environment: no proxy, no secret. A "no" of apprise
does not prove that nothing arrived, unless the service's status is in it or nothing was dialled.
"""

import asyncio
import contextlib
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kernel.conf import conf
from kernel.delivery.claims import Claimed
from kernel.delivery.ends import End
from kernel.delivery.mail import readable
from kernel.states import Delivery

PACKAGE = "apprise"
NOT_INSTALLED = "The package apprise is not installed here; chat services need it."
ROOT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
NO_HOME = "/nonexistent"  # so that no .netrc adds a password


def is_installed() -> bool:
    """Whether this process can send to chat services."""
    return find_spec(PACKAGE) is not None


async def send_chat(message: Claimed, *, deadline_seconds: float) -> End:
    """One attempt through apprise. `not_sent` where the package is missing: the payload is kept."""
    if not is_installed():
        return End(Delivery.NOT_SENT, NOT_INSTALLED)
    _, text = await asyncio.to_thread(readable, message.content)  # up to a second of work
    order = {
        "address": message.recipient,
        "title": message.event,
        "body": text,
        "allow_private": message.allow_private,
        "seconds": deadline_seconds,
        "memory_bytes": conf.chat_memory_bytes_max,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kernel.delivery.chat_process",
        cwd=ROOT,
        env={**{name: os.environ[name] for name in KEPT if name in os.environ}, "HOME": NO_HOME},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(deadline_seconds):
            said, _ = await process.communicate(json.dumps(order).encode())
    except TimeoutError:
        return End(Delivery.UNKNOWN, "the chat service did not answer in time")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    try:
        return _end_of(json.loads(said))
    except ValueError:
        return End(Delivery.UNKNOWN, f"the process that sends ended with {process.returncode}")


def _end_of(told: dict[str, Any]) -> End:
    if told["taken"]:
        return End(Delivery.DELIVERED, "the chat service took it")
    if not told["read"]:
        return End(Delivery.NOT_SENT, "apprise cannot read this address")
    if not told["dialled"]:
        return End(Delivery.NOT_SENT, told["refused"] or "apprise said no and dialled nothing")
    if status := told["status"]:
        return End(Delivery.REFUSED, f"the chat service said {status}", http_status=status)
    return End(Delivery.UNKNOWN, told["refused"] or "apprise said no; what happened is not known")
