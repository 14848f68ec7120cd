"""What the demo provider says: a text built from the request, its pieces and its token counts.

Where it is offered `refund_order` and asked for a refund, it asks for that call, as a model would.
"""

import json
import re
from typing import Any

QUOTED_CHARACTERS_MAX = 200
TOOL = "refund_order"
CURRENCIES = ("EUR", "USD", "GBP", "CHF")
_ORDER = re.compile(r"\border\s+(?:no\.?\s*|#)?([A-Za-z0-9-]{1,40})\b", re.IGNORECASE)
_AMOUNT = re.compile(r"\b(\d{1,9})(?:\.(\d{1,2}))?\s*(EUR|USD|GBP|CHF)\b")
_PIECE = re.compile(r"\s*(?:\w{1,4}|[^\w\s])")
_WORDS = re.compile(r"\S+\s*|\s+")


class BadRequest(ValueError):
    """The request is not a chat completion the demo provider can answer; the text says why."""


def pieces(text: str) -> list[str]:
    """Cut text into demo tokens: up to four word characters, or one other sign, each."""
    return _PIECE.findall(text)


def words(text: str) -> list[str]:
    """Cut text after each word, spaces kept: the pieces one stream event carries."""
    return _WORDS.findall(text)


def message_text(message: object) -> str:
    """The text of one chat message, text parts joined. Raises BadRequest on another shape."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise BadRequest("each message needs a role")
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    raise BadRequest("content must be a string or a list of parts")


def prompt_tokens(messages: list) -> int:
    """Tokens of the prompt: role and text of each message, counted like the answer."""
    return sum(len(pieces(m["role"])) + len(pieces(message_text(m))) for m in messages)


def answer(messages: list) -> str:
    """The whole answer to a conversation: the same messages give the same text."""
    asked = ""
    for message in messages:
        if message["role"] == "user":
            asked = message_text(message)
    asked = " ".join(asked.split())
    if len(asked) > QUOTED_CHARACTERS_MAX:
        asked = asked[: QUOTED_CHARACTERS_MAX - 1] + "…"
    count = f"{len(messages)} message{'' if len(messages) == 1 else 's'}"
    return (
        f"You wrote: “{asked}”. This is the demo provider: no model ran, this text was built from "
        f"your {count}. If you called through Bailing, your request was saved before it was sent "
        "here, it was sent once, and these bytes are now saved with their hash. Send the same body "
        "with the same Idempotency-Key: you get the same bytes, without another call. The console "
        "shows each step under Requests."
    )


def cut(text: str, tokens_max: int | None) -> tuple[str, int, str]:
    """Keep at most `tokens_max` tokens: (text, tokens, finish reason as OpenAI names it)."""
    parts = pieces(text)
    if tokens_max is None or len(parts) <= tokens_max:
        return text, len(parts), "stop"
    return "".join(parts[:tokens_max]), tokens_max, "length"


def wanted_call(asked: dict[str, Any]) -> dict[str, Any] | None:
    """The refund a user asks for, as arguments of `refund_order`; None where nothing is to call."""
    last = asked["messages"][-1]
    if last.get("role") != "user" or TOOL not in _offered(asked.get("tools")):
        return None
    text = message_text(last)
    order = _ORDER.search(text)
    if "refund" not in text.lower() or order is None:
        return None
    amount = _AMOUNT.search(text)
    if amount is None:
        return {"order_id": order[1], "amount": 4200, "currency": "EUR"}
    whole, cents, currency = amount.groups()
    value = float(f"{whole}.{cents}") if cents else int(whole)
    return {"order_id": order[1], "amount": value, "currency": currency}


def after_call(messages: list) -> str | None:
    """The last sentence, once the tool has answered; None where the last message is no answer."""
    last = messages[-1]
    if last.get("role") != "tool":
        return None
    told = message_text(last)
    try:
        value = json.loads(told)
        body = json.loads(value["body"]) if type(value.get("body")) is str else value
    except (ValueError, KeyError, AttributeError):
        return f"The tool answered: {told[:QUOTED_CHARACTERS_MAX]}"
    if type(body) is dict and body.get("status") == "refunded":
        return (
            f"Done. Order {body.get('order_id')} was refunded with {body.get('amount')}"
            f" {body.get('currency')}; the refund is {body.get('refund_id')}."
        )
    return f"The refund was not made: {json.dumps(body)[:QUOTED_CHARACTERS_MAX]}"


def _offered(tools: Any) -> set[str]:
    functions = [one.get("function") for one in tools or () if isinstance(one, dict)]
    return {str(one.get("name")) for one in functions if isinstance(one, dict)}
