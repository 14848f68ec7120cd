"""E-mail: one message through Django's mail settings, on threads of its own (F7).

Where a failure comes decides what it proves: before the message was handed over nothing was sent;
a reply of the server is a refusal; a connection lost afterwards leaves it unknown. The Message-ID
is the notification's, so that a second copy can be told from a second message.
"""

import asyncio
import contextlib
import json
import smtplib
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from kernel.delivery.claims import Claimed
from kernel.delivery.ends import End
from kernel.http import without_key
from kernel.states import Delivery
from kernel.visible import visible

THREADS = 8
REMOVED = "[mail password removed]"
DOMAIN = "bailing.invalid"  # of message ids: it names no host of anybody
NOT_CONFIGURED = (
    "E-mail is not configured: set BAILING_EMAIL_URL, such as smtp://user:secret@mail.example:587"
)
# The server answered, so nothing is unclear.
REFUSALS = (
    smtplib.SMTPRecipientsRefused,
    smtplib.SMTPSenderRefused,
    smtplib.SMTPResponseException,
    smtplib.SMTPNotSupportedError,
)


class Mailer:
    """Sends mails on at most THREADS threads; they start with the first mail."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    async def send(self, message: Claimed, *, deadline_seconds: float) -> End:
        """One attempt. After the deadline the connection is cut and the outcome is unknown."""
        if not settings.EMAIL_HOST:
            return End(Delivery.NOT_SENT, NOT_CONFIGURED)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="bailing-mail")
        call = _Call(message, timeout_seconds=deadline_seconds)
        work = asyncio.get_running_loop().run_in_executor(self._threads, call.run)
        try:
            async with asyncio.timeout(deadline_seconds):
                return await asyncio.shield(work)
        except TimeoutError:
            return call.give_up()

    def close(self) -> None:
        """Let the threads go; none is waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


class _Call:
    """One mail on its thread; knows whether anything was handed over."""

    def __init__(self, message: Claimed, *, timeout_seconds: float):
        self._message, self._timeout = message, timeout_seconds
        self._connection: Any = None
        self._handed_over = self._given_up = False

    def run(self) -> End:
        connection = self._connection = get_connection(timeout=self._timeout)
        try:
            try:
                connection.open()
            except (OSError, smtplib.SMTPException) as error:
                return End(Delivery.NOT_SENT, f"no connection to the mail server: {_said(error)}")
            if self._given_up:
                return End(Delivery.NOT_SENT, "the deadline passed before the mail was sent")
            self._handed_over = True
            return self._hand_over(connection)
        finally:
            with contextlib.suppress(Exception):
                connection.close()

    def _hand_over(self, connection: Any) -> End:
        try:
            connection.send_messages([mail_of(self._message)])
        except REFUSALS as error:
            return End(Delivery.REFUSED, _said(error), http_status=None)
        except (ValueError, UnicodeError) as error:  # an address that is none: nothing was sent
            return End(Delivery.NOT_SENT, f"the mail cannot be written: {_said(error)}")
        except (OSError, smtplib.SMTPException) as error:
            return End(Delivery.UNKNOWN, f"the connection was lost: {_said(error)}")
        return End(Delivery.DELIVERED, "the mail server took it")

    def give_up(self) -> End:
        """The deadline is over: cut the connection, so that the thread is free again."""
        self._given_up = True
        sock = getattr(getattr(self._connection, "connection", None), "sock", None)
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        if not self._handed_over:
            return End(Delivery.NOT_SENT, "no connection to the mail server in time")
        return End(Delivery.UNKNOWN, "the mail server did not answer in time")


def mail_of(message: Claimed) -> EmailMessage:
    """The mail of a notification: its content as readable text, its id in the headers."""
    data, text = readable(message.content)
    return EmailMessage(
        subject=_subject(message, data),
        body=text,
        from_email=message.sender or settings.DEFAULT_FROM_EMAIL,
        to=[message.recipient],
        headers={
            "Message-ID": f"<{message.message_id}@{DOMAIN}>",
            "X-Bailing-Notification": message.message_id,
        },
    )


def readable(content: bytes) -> tuple[Any, str]:
    """The content as JSON (None where it is none) and as text for people, nothing hidden in it."""
    try:
        data = json.loads(content)
    except ValueError:
        return None, visible(content.decode("utf-8", "replace"))
    return data, visible(json.dumps(data, indent=2, ensure_ascii=False))


def _subject(message: Claimed, data: Any) -> str:
    inner = data.get("data") if isinstance(data, dict) else None
    given = inner.get("subject") if isinstance(inner, dict) else None
    text = given if isinstance(given, str) and given.strip() else message.event
    return visible(" ".join(text.split()))[:200]


def _said(error: BaseException) -> str:
    """What the server said, without our password should it quote that."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        text = "; ".join(f"{code} {_text(said)}" for code, said in error.recipients.values())
    elif isinstance(error, smtplib.SMTPResponseException):
        text = f"{error.smtp_code} {_text(error.smtp_error)}"
    return without_key(text, key=settings.EMAIL_HOST_PASSWORD, mark=REMOVED)


_text = partial(str, encoding="utf-8", errors="replace")
