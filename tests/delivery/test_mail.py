"""E-mail through a loopback SMTP server: where it fails decides what it proves (F7)."""

import asyncio
import json
import string
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from email.policy import default
from typing import Any

import pytest

from kernel.delivery.ends import End
from kernel.delivery.mail import Mailer
from tests.delivery.test_channels import message


@dataclass
class Smtp:
    """A mail server that answers as told: `replies` maps a command to its reply; '' hangs up."""

    replies: dict[str, str] = field(default_factory=dict)
    mails: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    hold_seconds: dict[str, float] = field(default_factory=dict)
    port: int = 0

    async def __aenter__(self) -> "Smtp":
        self._tasks: set[Any] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sender, to = "", []
        word, reply = "GREET", "220 here"
        while True:
            await asyncio.sleep(self.hold_seconds.get(word, 0))
            reply = self.replies.get(word, reply)
            if not reply:
                return
            writer.write(reply.encode() + b"\r\n")
            await writer.drain()
            if word == "DATA" and reply.startswith("354"):
                raw = await reader.readuntil(b"\r\n.\r\n")
                self.mails.append((sender, to, raw[:-5]))
                word, reply = "END", "250 taken"
                continue
            line = (await reader.readuntil(b"\r\n")).decode().strip()
            word = line.split(" ")[0].upper()
            if word == "MAIL":
                sender = line
            if word == "RCPT":
                to = [*to, line]
            reply = {"DATA": "354 go on", "QUIT": "221 bye"}.get(word, "250 ok")


@pytest.fixture
async def smtp(settings: Any) -> AsyncIterator[Smtp]:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    async with Smtp() as server:
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        yield server


async def send(*, deadline: float = 5.0, **fields: Any) -> End:
    mailer = Mailer()
    values = {"channel": "email", "secret_env": "", **fields}
    try:
        return await mailer.send(message("ops@example.org", **values), deadline_seconds=deadline)
    finally:
        mailer.close()


def parsed(smtp: Smtp) -> Message:
    ((_, _, raw),) = smtp.mails
    return message_from_bytes(raw, policy=default)


async def test_a_mail_arrives_under_the_notifications_id(smtp: Smtp) -> None:
    end = await send(sender="Bailing <bot@example.org>")
    assert end.outcome == "delivered"
    mail = parsed(smtp)
    assert mail["Message-ID"] == "<ntf_1@bailing.invalid>"
    assert (mail["To"], mail["From"]) == ("ops@example.org", "Bailing <bot@example.org>")
    assert mail["Subject"] == "message"
    assert "né 😀" in mail.get_content()  # type: ignore[attr-defined]  # the policy makes it one


async def test_a_second_attempt_has_the_same_id(smtp: Smtp) -> None:
    await send()
    await send(number=2)
    ids = [message_from_bytes(raw)["Message-ID"] for _, _, raw in smtp.mails]
    assert ids == ["<ntf_1@bailing.invalid>"] * 2


async def test_a_subject_cannot_bring_a_header_of_its_own(smtp: Smtp) -> None:
    content = b'{"type":"message","data":{"subject":"Hi\\r\\nBcc: evil@example.org","text":"x"}}'
    assert (await send(content=content)).outcome == "delivered"
    assert parsed(smtp)["Subject"] == "Hi Bcc: evil@example.org"
    assert parsed(smtp)["Bcc"] is None


HOSTILE = "pay 100\u202e001\u200b\u2028now\x7f\u0085"
SHOWN = "pay 100⟦U+202E⟧001⟦U+200B⟧"


async def test_what_hides_in_a_text_is_named_in_the_mail(smtp: Smtp) -> None:
    data = {"type": "approval.requested", "data": {"subject": HOSTILE, "text": HOSTILE}}
    await send(content=json.dumps(data, ensure_ascii=False).encode())
    await send(content=f"no json: {HOSTILE}".encode())
    mails = [message_from_bytes(raw, policy=default) for _, _, raw in smtp.mails]
    bodies = [mail.get_content() for mail in mails]  # type: ignore[attr-defined]  # as above
    for body in bodies:
        assert f"{SHOWN}⟦U+2028⟧now⟦U+007F⟧⟦U+0085⟧" in body
    assert f"{SHOWN} now⟦U+007F⟧" in mails[0]["Subject"]
    told = "".join([*bodies, mails[0]["Subject"]])
    assert not set(HOSTILE) & set(told) - set(string.printable)


async def test_a_server_that_quotes_the_password_has_no_evidence_of_it(
    smtp: Smtp, settings: Any
) -> None:
    settings.EMAIL_HOST_PASSWORD = "a-mail-password"  # without a user nobody logs in
    smtp.replies = {"MAIL": "535 a-mail-password is wrong"}
    assert (await send()).evidence == "535 [mail password removed] is wrong"


@pytest.mark.parametrize(
    ("replies", "outcome"),
    [
        ({"GREET": "421 closing"}, "not_sent"),
        ({"GREET": ""}, "not_sent"),
        ({"MAIL": "550 no such sender"}, "refused"),
        ({"RCPT": "550 no such user"}, "refused"),
        ({"DATA": "451 try later"}, "refused"),
        ({"END": "554 spam"}, "refused"),
        ({"END": ""}, "unknown"),
    ],
)
async def test_where_it_fails_decides_what_it_proves(
    smtp: Smtp, replies: dict[str, str], outcome: str
) -> None:
    smtp.replies = replies
    end = await send()
    assert end.outcome == outcome, end
    for reply in replies.values():
        assert reply[4:] in end.evidence
    assert not end.is_final


@pytest.mark.parametrize(("word", "outcome"), [("GREET", "not_sent"), ("END", "unknown")])
async def test_a_server_that_hangs_is_given_up_at_the_deadline(
    smtp: Smtp, word: str, outcome: str
) -> None:
    smtp.hold_seconds[word] = 60
    started = time.monotonic()
    assert (await send(deadline=0.5)).outcome == outcome
    assert time.monotonic() - started < 3


async def test_nobody_listens(settings: Any, smtp: Smtp) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    settings.EMAIL_PORT = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert (await send()).outcome == "not_sent"


async def test_without_a_mail_server_it_says_what_to_set(settings: Any) -> None:
    settings.EMAIL_HOST = ""
    end = await send()
    assert end.outcome == "not_sent" and "BAILING_EMAIL_URL" in end.evidence


async def test_content_that_is_no_json_is_mailed_as_it_is(smtp: Smtp) -> None:
    assert (await send(content=b"plain words \xff")).outcome == "delivered"
    assert "plain words" in parsed(smtp).get_content()  # type: ignore[attr-defined]  # as above
