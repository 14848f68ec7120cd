"""Short ways to write provider answers as bytes, and to charge what was read from them."""

import json
from typing import Any

from kernel.money import MULTIPLIER_ONE
from kernel.usage import pricing
from kernel.usage.metering import Metering, facts_of_body
from kernel.usage.pricing import PriceSnapshot, parse_rates
from kernel.usage.streams import StreamReader, StreamSummary


def body(usage: object, **more: Any) -> bytes:
    message = {"role": "assistant", "content": "Hallo Welt"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"id": "chatcmpl-213", "choices": [choice], "usage": usage, **more}).encode()


def metered(usage: object, **more: Any) -> Metering:
    return facts_of_body(body(usage, **more)).metering


def event(value: object, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def delta(text: str = "x", finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return event({"id": "chatcmpl-213", "choices": [choice], **more})


DONE = b"data: [DONE]\n\n"


def streamed(*chunks: bytes) -> StreamSummary:
    """The same for whole chunks and for single bytes."""
    found = []
    for pieces in (chunks, [bytes([one]) for one in b"".join(chunks)]):
        reader = StreamReader()
        for piece in pieces:
            reader.feed(piece)
        found.append(reader.finish())
    assert found[0] == found[1]
    return found[0]


def card(**rates: Any) -> PriceSnapshot:
    named = {key.replace("__", "@"): value for key, value in rates.items()}
    return PriceSnapshot("operator", "1", "openai", "m", parse_rates(named))


def nano(metering: Metering, **rates: Any) -> int:
    """The charge in nano-USD, through frozen price text and the account's multiplier of 1."""
    frozen = PriceSnapshot.from_text(card(**rates).to_text())
    charge = pricing.price(frozen, Metering.from_text(metering.to_text()))
    assert (charge.reason, charge.detail) == (None, "")
    assert charge.reference_usd is not None
    stored = pricing.lines_from_text(pricing.lines_text(charge.lines))
    assert pricing.total_usd(stored) == charge.reference_usd
    return pricing.charge_nano(charge.reference_usd, MULTIPLIER_ONE)


def reason(metering: Metering, **rates: Any) -> str | None:
    charge = pricing.price(card(**rates), metering)
    assert (charge.reference_usd is None) == (charge.reason is not None)
    return charge.reason
