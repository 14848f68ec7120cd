"""One attempt over the wire: what its end proves (F2). The status decides, not the body."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kernel import clock
from kernel.conf import conf, override
from kernel.delivery import chat, signing
from kernel.delivery.channels import Channels
from kernel.delivery.claims import Claimed
from kernel.delivery.ends import End
from kernel.delivery.mail import Mailer
from kernel.http import Door
from tests.delivery.post import SECRET, SECRET_ENV
from tests.support.hostile_peer import HostilePeer
from tests.support.receiver import Receiver

BODY = '{"type":"message","data":{"text":"né 😀"}}'.encode()
OTHER = "another-secret-of-24-bytes"


@pytest.fixture
async def peer() -> AsyncIterator[HostilePeer]:
    async with HostilePeer() as running:
        yield running


@pytest.fixture
async def receiver(tmp_path: Path) -> AsyncIterator[Receiver]:
    async with Receiver(tmp_path) as running:
        yield running


@pytest.fixture
async def channels() -> AsyncIterator[Channels]:
    door = Door()
    yield Channels(door, Mailer(), {SECRET_ENV: SECRET, "SECOND_SECRET": OTHER})
    await door.aclose()


def message(url: str, **fields: Any) -> Claimed:
    values: dict[str, Any] = {
        "id": "ntf_1",
        "kind": "delivery",
        "channel": "webhook",
        "event": "message",
        "recipient": url,
        "sender": "",
        "content": BODY,
        "content_type": "application/json",
        "destination_id": "ops",
        "secret_env": SECRET_ENV,
        "allow_private": True,
        "number": 1,
        "owner": "snd_a",
        "fence_token": "t",
        "started_at": clock.now(),
        **fields,
    }
    return Claimed(**values)


async def send(channels: Channels, url: str, *, deadline: float = 5.0, **fields: Any) -> End:
    return await channels.send(message(url, **fields), deadline_seconds=deadline)


@pytest.mark.parametrize(
    ("status", "outcome", "is_final"),
    [
        (200, "delivered", False),
        (201, "delivered", False),
        (204, "delivered", False),
        (299, "delivered", False),
        (301, "refused", False),
        (400, "refused", False),
        (401, "refused", False),
        (404, "refused", False),
        (408, "refused", False),
        (409, "refused", False),
        (410, "refused", True),
        (425, "refused", False),
        (429, "refused", False),
        (500, "refused", False),
        (503, "refused", False),
    ],
)
async def test_the_status_says_what_became_of_it(
    channels: Channels, receiver: Receiver, status: int, outcome: str, is_final: bool
) -> None:
    receiver.answers["ops"] = [status]
    end = await send(channels, receiver.url("ops"))
    assert (end.outcome, end.http_status, end.is_final) == (outcome, status, is_final)
    assert len(receiver.messages()) == 1, "a redirect is not followed, nothing is tried twice"


@pytest.mark.parametrize(
    "what",
    [
        ("short_body", {}),
        ("short_chunked", {}),
        ("bad_chunk", {}),
        ("close_delimited", {}),
        ("reset_in_body", {}),
        ("huge_length", {}),
        ("endless", {}),
        ("bomb", {"mib": 64, "gzip": 1}),
        ("understated", {}),
        ("gzip_but_plain", {}),
        ("stacked", {}),
    ],
)
async def test_a_200_is_delivered_whatever_becomes_of_its_body(
    channels: Channels, peer: HostilePeer, what: tuple[str, dict[str, int]]
) -> None:
    name, params = what
    end = await send(channels, peer.url(name, **params))
    assert (end.outcome, end.http_status) == ("delivered", 200), end
    assert len(end.evidence) <= conf.answer_bytes_max + 300
    assert peer.received[name] == 1


async def test_a_broken_body_is_noted(channels: Channels, peer: HostilePeer) -> None:
    end = await send(channels, peer.url("short_body"))
    assert "[the body is not whole:" in end.evidence


async def test_a_200_whose_body_never_ends_does_not_hold_its_slot_for_long(
    channels: Channels, peer: HostilePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel.delivery.channels.BODY_SECONDS", 0.1)
    end = await send(channels, peer.url("hang_after_head"), deadline=30)
    assert end.outcome == "delivered" and "did not end" in end.evidence


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hang", "deadline"),
        ("reset_after_request", "connection_lost"),
        ("close_after_request", "connection_lost"),
        ("garbage", "bad_response"),
        ("many_headers", "bad_response"),
        ("huge_header", "bad_response"),
        ("two_lengths", "bad_response"),
        ("half_a_head", "bad_response"),
    ],
)
async def test_without_a_readable_answer_it_may_have_arrived(
    channels: Channels, peer: HostilePeer, name: str, reason: str
) -> None:
    end = await send(channels, peer.url(name), deadline=1.0)
    assert end.outcome == "unknown", end
    assert end.evidence.startswith(f"{reason}:") or name in ("two_lengths", "half_a_head")


async def test_a_refused_connection_proves_that_nothing_was_sent(channels: Channels) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    end = await send(channels, f"http://127.0.0.1:{port}/")
    assert end.outcome == "not_sent"


REFUSED = (
    "http://127.1/",
    "http://0x7f000001/",
    "http://2130706433/",
    "http://[::1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[fd00:ec2::254]/",
    "http://100.64.0.1/",
    "http://localhost/",
)


@pytest.mark.parametrize("url", REFUSED)
async def test_an_address_that_must_not_be_dialled_is_not_dialled(
    channels: Channels, url: str
) -> None:
    end = await send(channels, url, allow_private=False)
    assert end.outcome == "not_sent" and end.evidence.startswith("address_refused"), end


async def test_one_private_address_among_public_ones_refuses_the_name(receiver: Receiver) -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "127.0.0.1"]

    door = Door(resolve=both)
    channels = Channels(door, Mailer(), {SECRET_ENV: SECRET})
    end = await send(channels, f"http://hooks.example:{receiver.port}/", allow_private=False)
    await door.aclose()
    assert end.outcome == "not_sent" and end.evidence.startswith("address_refused")
    assert receiver.messages() == []


async def test_the_environment_adds_nothing(
    channels: Channels, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login evil password evil\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await send(channels, receiver.url("ops"))).outcome == "delivered"
    (one,) = receiver.messages()
    assert "authorization" not in one.headers and one.headers["accept-encoding"] == "identity"


# --- signatures --------------------------------------------------------------------------------


async def test_each_attempt_is_signed_anew_under_one_id_over_the_same_bytes(
    channels: Channels, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, times = clock.now, iter((0, 61))
    offset = timedelta(seconds=next(times))
    monkeypatch.setattr("kernel.clock.now", lambda: real() + offset)
    await send(channels, receiver.url("ops"))
    offset = timedelta(seconds=next(times))
    await send(channels, receiver.url("ops"), number=2)
    first, second = receiver.messages()
    assert first.id == second.id == "ntf_1" and first.body == second.body == BODY
    assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]
    for one in (first, second):
        signing.verify(
            headers=one.headers,
            body=one.body,
            secrets=[SECRET],
            now=real(),
            tolerance_seconds=300,
        )


async def test_while_secrets_rotate_both_sign(channels: Channels, receiver: Receiver) -> None:
    await send(channels, receiver.url("ops"), secret_env=f"{SECRET_ENV},SECOND_SECRET")
    (one,) = receiver.messages()
    for secret in (SECRET, OTHER):
        signing.verify(
            headers=one.headers,
            body=one.body,
            secrets=[secret],
            now=clock.now(),
            tolerance_seconds=60,
        )


@pytest.mark.parametrize("env", ["MISSING_SECRET", f"{SECRET_ENV},MISSING_SECRET"])
async def test_without_its_secret_nothing_leaves(
    channels: Channels, receiver: Receiver, env: str
) -> None:
    end = await send(channels, receiver.url("ops"), secret_env=env)
    assert (
        end.outcome == "not_sent"
        and "A signing secret of this destination is not set" in end.evidence
    )
    assert receiver.messages() == [], "never unsigned"


async def test_a_receiver_that_shows_the_secret_has_no_evidence_of_it(
    channels: Channels, peer: HostilePeer
) -> None:
    said = f'{{"HOOK_SECRET": "{SECRET}"}}'.encode()
    end = await send(channels, peer.url("echo"), secret_env=SECRET_ENV, content=said)
    assert end.evidence == 'HTTP 200 {"HOOK_SECRET": "[signing secret removed]"}'


# --- Retry-After, other channels ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("Retry-After", "120")], 120),
        ([("Retry-After", "9999999999")], 3600),
        ([("Retry-After", "-5")], None),
        ([("Retry-After", "abc")], None),
        ([("Retry-After", "1"), ("Retry-After", "2")], None),
        ([], None),
    ],
)
async def test_a_busy_receiver_says_when_to_come_back(
    channels: Channels, receiver: Receiver, headers: list[tuple[str, str]], expected: int | None
) -> None:
    receiver.answers["ops"], receiver.headers["ops"] = [503], headers
    assert (await send(channels, receiver.url("ops"))).retry_after_seconds == expected


async def test_a_channel_that_is_not_here_keeps_the_message(channels: Channels) -> None:
    """Another version of this product may have it: never final."""
    end = await send(channels, "x", channel="pigeon")
    assert (end.outcome, end.is_final) == ("not_sent", False)


async def test_without_its_package_chat_says_so(
    channels: Channels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "is_installed", lambda: False)
    end = await send(channels, "slack://a/b/c", channel="apprise")
    assert (end.outcome, end.is_final) == ("not_sent", False) and "apprise" in end.evidence


async def test_the_body_is_read_only_as_far_as_it_is_kept(
    channels: Channels, receiver: Receiver
) -> None:
    with override(answer_bytes_max=1024):
        assert (await send(channels, receiver.url("ops"))).evidence == "HTTP 200 ok"
