"""Channels: one attempt at one message, and what its end proves (F2, F7).

A webhook's status decides, whatever becomes of its body: a receiver that said 200 has the message.
Nothing here touches rows, and nothing is sent twice: the next attempt is the schedule's business.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass

from kernel import clock
from kernel.conf import conf
from kernel.delivery import schedule, signing
from kernel.delivery.chat import send_chat
from kernel.delivery.claims import Claimed
from kernel.delivery.ends import End
from kernel.delivery.mail import Mailer
from kernel.errors import NotSent, OutcomeUnknown, PeerError
from kernel.http import AddressPolicy, Answer, Door, without_key
from kernel.ids import key_values
from kernel.outbox import APPRISE, EMAIL, WEBHOOK
from kernel.states import Delivery

GONE = 410
REMOVED = "[signing secret removed]"
BODY_SECONDS = 5.0  # a receiver's words are evidence, not worth a slot for long


@dataclass(slots=True)
class Channels:
    """Everything that sending needs: the door, the mail threads, the secrets of the environment."""

    door: Door
    mailer: Mailer
    environ: Mapping[str, str]

    async def send(self, message: Claimed, *, deadline_seconds: float) -> End:
        """One attempt, within `deadline_seconds`. Only a cancelled task leaves it without an End.

        A channel that this process cannot serve is `not_sent`: another one may (never final).
        """
        if message.channel == WEBHOOK:
            return await self._webhook(message, deadline_seconds=deadline_seconds)
        if message.channel == EMAIL:
            return await self.mailer.send(message, deadline_seconds=deadline_seconds)
        if message.channel == APPRISE:
            return await send_chat(message, deadline_seconds=deadline_seconds)
        return End(Delivery.NOT_SENT, f"This version has no channel {message.channel}.")

    async def _webhook(self, message: Claimed, *, deadline_seconds: float) -> End:
        try:
            return await self._post(message, deadline_seconds=deadline_seconds)
        except NotSent as error:
            return End(Delivery.NOT_SENT, f"{error.error_code}: {error.message}")
        except OutcomeUnknown as error:
            reason = error.details.get("reason") or error.error_code
            status = error.details.get("status")
            return End(Delivery.UNKNOWN, f"{reason}: {error.message}", http_status=status)

    async def _post(self, message: Claimed, *, deadline_seconds: float) -> End:
        secrets = self._secrets(message)
        async with self.door.call(
            method="POST",
            url=message.recipient,
            headers=_headers(message, secrets),
            content=message.content,
            policy=AddressPolicy(allow_private=message.allow_private),
            deadline_seconds=deadline_seconds,
            read_seconds=deadline_seconds,
            connect_seconds=min(conf.provider_connect_seconds, deadline_seconds),
        ) as answer:
            evidence = f"HTTP {answer.status} {await _words_of(answer)}".strip()
            for secret in secrets:  # its error page may show what it is set up with
                evidence = without_key(evidence, key=secret, mark=REMOVED)
            if 200 <= answer.status < 300:
                return End(Delivery.DELIVERED, evidence, http_status=answer.status)
            return End(
                Delivery.REFUSED,
                evidence,
                http_status=answer.status,
                retry_after_seconds=schedule.asked_seconds(
                    status=answer.status,
                    values=answer.header_values("retry-after"),
                    now=clock.now(),
                ),
                is_final=answer.status == GONE,
            )

    def _secrets(self, message: Claimed) -> list[str]:
        """What signs it, read for each attempt. NotSent where one is missing: never unsigned."""
        found = key_values(message.secret_env, environ=self.environ)
        for name, secret in found.items():
            if signing.key_of(secret) is None:
                raise NotSent(
                    # Without the variable's name: one mistake is one group of errors.
                    "A signing secret of this destination is not set, or has fewer than"
                    f" {signing.KEY_BYTES_MIN} bytes.",
                    code="secret_missing",
                    next_action=f"Set {name} where the product runs, and restart.",
                )
        return list(found.values())


def channels_of(*, door: Door) -> Channels:
    """The channels of this process."""
    return Channels(door, Mailer(), os.environ)


def _headers(message: Claimed, secrets: list[str]) -> list[tuple[str, str]]:
    headers = [("Content-Type", message.content_type)]
    if not secrets:
        return [*headers, (signing.ID, message.message_id)]
    signed = signing.sign(
        message_id=message.message_id,
        signed_at=clock.now(),
        body=message.content,
        secrets=secrets,
    )
    return [*headers, *signed.items()]


async def _words_of(answer: Answer) -> str:
    """The start of the answer's body, and a note where it is not whole. Never raises for a peer."""
    pieces: list[bytes] = []
    note = ""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in answer.chunks(
                body_bytes_max=conf.answer_bytes_max, require_end=False
            ):
                pieces.append(piece)
    except TimeoutError:
        note = f" [the body did not end within {BODY_SECONDS:g} s]"
    except PeerError as error:
        note = f" [the body is not whole: {error.message}]"
    return b"".join(pieces).decode("utf-8", "replace") + note
