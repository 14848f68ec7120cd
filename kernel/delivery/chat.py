"""Chat services through the package `apprise`, where it is installed (F7).

It brings its own network code: the address policy of our door does not hold there. Its answer is
yes or no, so a "no" does not prove that nothing arrived.
"""

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kernel.delivery.claims import Claimed
from kernel.delivery.ends import End
from kernel.delivery.mail import readable
from kernel.states import Delivery

PACKAGE = "apprise"
NOT_INSTALLED = "The package apprise is not installed here; chat services need it."


def is_installed() -> bool:
    """Whether this process can send to chat services."""
    return find_spec(PACKAGE) is not None


async def send_chat(message: Claimed, *, deadline_seconds: float) -> End:
    """One attempt through apprise. `not_sent` where the package is missing: the payload is kept."""
    if not is_installed():
        return End(Delivery.NOT_SENT, NOT_INSTALLED)
    apprise: Any = import_module(PACKAGE)
    target = apprise.Apprise()
    if not target.add(message.recipient):
        return End(Delivery.NOT_SENT, "apprise cannot read this address")
    _, text = readable(message.content)
    try:
        async with asyncio.timeout(deadline_seconds):
            taken = await target.async_notify(title=message.event, body=text)
    except TimeoutError:
        return End(Delivery.UNKNOWN, "the chat service did not answer in time")
    except (OSError, TypeError, ValueError) as error:
        return End(Delivery.UNKNOWN, f"{type(error).__name__}: {error}")
    if taken:
        return End(Delivery.DELIVERED, "the chat service took it")
    return End(Delivery.UNKNOWN, "apprise said no; what happened is in its log")
