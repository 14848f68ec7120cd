"""Chat services: apprise in its own process, every address checked as it is dialled (E6, F7)."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kernel.conf import override
from kernel.delivery.channels import Channels
from kernel.delivery.ends import End
from kernel.delivery.mail import Mailer
from kernel.http import Door
from tests.delivery.test_channels import message
from tests.support.receiver import Receiver

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def receiver(tmp_path: Path) -> AsyncIterator[Receiver]:
    async with Receiver(tmp_path) as running:
        yield running


async def send(
    address: str, *, deadline: float = 60.0, allow_private: bool = True, **fields: Any
) -> End:
    door = Door()
    one = message(address, channel="apprise", allow_private=allow_private, **fields)
    try:
        return await Channels(door, Mailer(), {}).send(one, deadline_seconds=deadline)
    finally:
        await door.aclose()


def told(end: End) -> tuple[str, int | None]:
    return end.outcome, end.http_status


async def test_a_chat_message_arrives_and_what_does_not_arrive_says_what_it_proves(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{receiver.port}/proxy")
    host = f"json://127.0.0.1:{receiver.port}"
    receiver.answers |= {"no": [401], "away": [302]}
    receiver.headers["away"] = [("Location", receiver.url("secret"))]
    receiver.hold_seconds["hang"] = 600.0
    taken, refused, moved, unread, hung = await asyncio.gather(
        send(f"{host}/ops", content='{"data":{"text":"né 😀 \u202e100\u200b"}}'.encode()),
        send(f"{host}/no"),
        send(f"{host}/away"),
        send("nothing://at/all"),
        send(f"{host}/hang", deadline=3.0),  # apprise itself gives up after 4 s
    )
    assert told(taken) == ("delivered", None)
    (arrived,) = receiver.messages("ops")
    said = json.loads(arrived.body)
    assert said["title"] == "message"
    assert "né 😀 ⟦U+202E⟧100⟦U+200B⟧" in said["message"], "nothing hides"
    assert told(refused) == ("refused", 401)
    assert moved.outcome == "unknown" and receiver.messages("secret") == []
    assert told(unread) == ("not_sent", None)
    assert hung.outcome == "unknown" and "in time" in hung.evidence
    assert receiver.messages("proxy") == [], "no proxy of the environment"


async def test_an_answer_without_end_takes_no_more_than_its_share_of_memory() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                writer.write(bytes(1024 * 1024))
                await writer.drain()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with override(chat_memory_bytes_max=128 * 1024 * 1024):
        end = await send(f"json://127.0.0.1:{port}/ops")
    server.close()
    assert end.outcome == "unknown" and "in time" not in end.evidence


async def test_an_address_that_the_policy_denies_is_never_dialled(receiver: Receiver) -> None:
    """Also where a name leads to it: what is checked is what is dialled."""
    addresses = [
        f"json://127.0.0.1:{receiver.port}/a",
        f"json://localhost:{receiver.port}/b",
        f"mailto://u:p@x.example:{receiver.port}?smtp=127.0.0.1&to=y@x.example",
    ]
    ends = await asyncio.gather(*(send(one, allow_private=False) for one in addresses))
    ends.append(await send("json://169.254.169.254/latest", allow_private=True))
    for end in ends:
        assert told(end) == ("not_sent", None)
        assert "is not allowed" in end.evidence
    assert receiver.messages() == []


GUARDED = """
import socket, subprocess, os, threading
from kernel.http.addresses import AddressPolicy
from kernel.http.guard import Forbidden, Guard
server = socket.create_server(("127.0.0.1", 0))
guard = Guard(AddressPolicy())
guard.install()
port = server.getsockname()[1]
real = socket.getaddrinfo
def rebound(*args, **more):  # a name that was public when somebody looked
    return real("127.0.0.1", port, type=socket.SOCK_STREAM)
def refused(act):
    try:
        act()
    except Forbidden:
        return True
    return False
def udp():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("10.0.0.1", 53))
def in_a_thread():
    found = []
    one = threading.Thread(target=lambda: found.append(refused(dial)))
    one.start(); one.join()
    if found == [True]:
        raise Forbidden
dial = lambda: socket.create_connection(("public.example", port))
socket.getaddrinfo = rebound
acts = [dial, udp, in_a_thread,
    lambda: socket.socket(socket.AF_UNIX).connect("/run/x.sock"),
    lambda: socket.socket().connect(("localhost", port)),
    lambda: socket.socket(socket.AF_INET6).connect(("::ffff:127.0.0.1", port)),
    lambda: subprocess.run(["true"]), lambda: os.system("true"), os.fork,
]
print([refused(act) for act in acts].count(True), len(acts), guard.dialled, bool(guard.refused))
"""


def test_the_guard_looks_at_the_dialled_address_in_every_thread_and_starts_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GUARDED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["9", "9", "0", "True"], done.stdout
