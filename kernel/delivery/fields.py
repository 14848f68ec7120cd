"""What the fields of destinations and rules may hold: addresses, events, names of secrets."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernel import outbox
from kernel.delivery import chat
from kernel.errors import AddressRefused, InvalidInput
from kernel.http import AddressPolicy, check_url
from kernel.ids import ALLOWED, check_key_name, check_text
from kernel.outbox import APPRISE, EMAIL, EXECUTOR, WEBHOOK

CHANNELS = (WEBHOOK, EMAIL, APPRISE, EXECUTOR)
ADDRESS_CHARS_MAX, SENDER_CHARS_MAX = 500, 200
SECRETS_MAX, SECRET_CHARS_MAX = 2, 59
_MAIL = re.compile(r"[^\s@<>,;:\"()\[\]]+@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?\Z")


def checked_fields(channel: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The columns for these fields of a destination. InvalidInput names the first that is wrong."""
    if channel not in CHANNELS:
        raise InvalidInput(f"channel is one of {', '.join(CHANNELS)}", field="channel")
    for name in ("allow_private", "active"):
        if type(fields[name]) is not bool:
            raise InvalidInput(f"{name} is true or false", field=name)
    address = check_text(fields["address"], field="address", chars_max=ADDRESS_CHARS_MAX)
    _CHECKS[channel](address, fields["allow_private"])
    sender = fields["sender"]
    if sender:
        sender = check_text(sender, field="sender", chars_max=SENDER_CHARS_MAX)
    return {
        "address": address,
        "sender": sender,
        "secret_env": _checked_secrets(channel, fields["secret_env"]),
        "events_text": json.dumps(_checked_events(fields["events"])),
        "allow_private": fields["allow_private"],
        "active": fields["active"],
    }


def _check_webhook(address: str, allow_private: bool) -> None:
    try:
        check_url(address, AddressPolicy(allow_private=allow_private))
    except AddressRefused as error:
        raise InvalidInput(error.message, field="address") from None


def _check_mail(address: str, allow_private: bool) -> None:
    if not _MAIL.match(address):
        raise InvalidInput("address is one mail address, such as ops@example.org", field="address")


def _check_chat(address: str, allow_private: bool) -> None:
    if not chat.is_installed():
        raise InvalidInput(
            chat.NOT_INSTALLED, field="channel", next_action="Install the package apprise."
        )
    if "://" not in address:
        raise InvalidInput("address is an apprise URL, such as slack://...", field="address")


def _check_anything(address: str, allow_private: bool) -> None:
    return


_CHECKS: dict[str, Callable[[str, bool], None]] = {
    WEBHOOK: _check_webhook,
    EMAIL: _check_mail,
    APPRISE: _check_chat,
    EXECUTOR: _check_anything,
}


def _checked_secrets(channel: str, text: Any) -> str:
    names = [name.strip() for name in text.split(",") if name.strip()] if text else []
    if channel != WEBHOOK:
        if names:
            raise InvalidInput("only a webhook is signed", field="secret_env")
        return ""
    if not 1 <= len(names) <= SECRETS_MAX or any(len(name) > SECRET_CHARS_MAX for name in names):
        raise InvalidInput(
            "write the name of the environment variable that holds the signing secret, in capitals;"
            " two with a comma while they rotate; never the secret itself",
            field="secret_env",
        )
    return ",".join(check_key_name(name, field="secret_env") for name in names)


def _checked_events(events: Any) -> list[str]:
    if not isinstance(events, list | tuple) or not events:
        raise InvalidInput("name at least one event", field="events")
    return sorted({check_event(event, field="events", among=outbox.EVENTS) for event in events})


def check_event(event: Any, *, field: str, among: Sequence[str]) -> str:
    """An event of `among`, or a prefix of one by dots. InvalidInput."""
    if not isinstance(event, str) or not ALLOWED.match(event):
        raise InvalidInput(f"{field}: no event is named so", field=field)
    if not any(outbox.matches(known, (event,)) for known in among):
        raise InvalidInput(f"no event is named {event}; known: {', '.join(among)}", field=field)
    return event
