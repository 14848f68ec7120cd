"""Request bodies: what a caller asks for, and the body that goes to the provider.

Pure. The caller's bytes stay as they are, except for the model's name, in a stream the wish for a
usage report, and the maximum output that a hold relies on; nothing is decoded and encoded again.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from kernel.errors import InvalidInput
from kernel.usage.json_text import Member, NotFinite, members

CHOICES_MAX = 128
OUTPUT_TOKENS_MAX = 100_000_000
FIELD_CHARS_MAX = 200
# OpenAI's newer models know no max_tokens; most other providers know no other name.
OUTPUT_LIMIT_FIELDS = {"openai": "max_completion_tokens", "azure": "max_completion_tokens"}
OUTPUT_LIMIT_FIELD = "max_tokens"


_TIER = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat completion request as its caller sent it. `max_output_tokens` is per choice."""

    text: str
    parts: dict[str, Member]
    model: str
    stream: bool
    wants_usage: bool
    choices: int
    max_output_tokens: int | None
    service_tier: str | None

    @property
    def fields(self) -> dict[str, Any]:
        """The decoded body."""
        return {name: part.value for name, part in self.parts.items()}


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """The provider's body, and whether its usage-only chunk must be hidden from the caller."""

    body: bytes
    hide_usage: bool


def read_request(raw: bytes) -> ChatRequest:
    """Check the caller's body as far as this product reads it. InvalidInput names the field (A1).

    A key given twice at the top level is refused: two readers could see two different requests. So
    are NaN, Infinity and 1e999: they are no JSON, and readers differ about them.
    """
    try:
        text = raw.decode("utf-8")
        found = members(text, finite=True)
    except NotFinite as error:
        field = error.path[:FIELD_CHARS_MAX]
        raise InvalidInput(f"{field}: {error}", field=field) from None
    except ValueError as error:
        raise InvalidInput(f"the body must be one JSON object: {error}", field="body") from None
    parts = {part.key: part for part in found}
    if len(parts) != len(found):
        twice = next(part.key for part in found if parts[part.key] is not part)
        raise InvalidInput(f"{twice[:80]!r} is given twice", field=twice[:80])
    model = _value(parts, "model")
    if type(model) is not str or not model:
        raise InvalidInput("model must name a service", field="model")
    stream = _value(parts, "stream")
    if stream is not None and type(stream) is not bool:
        raise InvalidInput("stream must be true or false", field="stream")
    tier = _value(parts, "service_tier")
    if tier is not None and (type(tier) is not str or not _TIER.fullmatch(tier)):
        raise InvalidInput("service_tier must be a word such as default", field="service_tier")
    limits = [
        _whole_number(parts, name, most=OUTPUT_TOKENS_MAX)
        for name in ("max_completion_tokens", "max_tokens")
    ]
    return ChatRequest(
        text=text,
        parts=parts,
        model=model,
        stream=bool(stream),
        wants_usage=_wants_usage(parts),
        choices=_whole_number(parts, "n", most=CHOICES_MAX) or 1,
        max_output_tokens=max((limit for limit in limits if limit is not None), default=None),
        service_tier=tier,
    )


def output_limit_field(price_provider: str) -> str:
    """The field in which a provider, named as its prices are, takes a maximum output."""
    return OUTPUT_LIMIT_FIELDS.get(price_provider, OUTPUT_LIMIT_FIELD)


def prepare_request(
    request: ChatRequest,
    *,
    upstream_model: str,
    ask_usage: bool = True,
    output_limit: tuple[str, int] | None = None,
) -> PreparedRequest:
    """The body for the provider: the service's model instead of its id; a stream asks for usage.

    `output_limit`, field and tokens per choice, is put in where the caller named no maximum (A15).
    Every other byte is the caller's. `ask_usage=False`: a provider that knows no stream_options.
    """
    changes = [_replaced(request.parts["model"], json.dumps(upstream_model))]
    hide = ask_usage and request.stream and not request.wants_usage
    if hide:
        changes.append(_with_usage(request))
    if output_limit is not None and request.max_output_tokens is None:
        changes.append(_with_member(request, output_limit[0], str(output_limit[1])))
    text = request.text
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return PreparedRequest(text.encode(), hide)


Change = tuple[int, int, str]


def _replaced(part: Member, new: str) -> Change:
    return part.start, part.end, new


def _with_member(request: ChatRequest, name: str, value: str) -> Change:
    """Give a member its value: in place of a null, else as the first one of the body."""
    part = request.parts.get(name)
    if part is not None:
        return _replaced(part, value)
    start = request.text.index("{") + 1
    return start, start, f'"{name}":{value},'


def _with_usage(request: ChatRequest) -> Change:
    part = request.parts.get("stream_options")
    if part is None:
        return _with_member(request, "stream_options", '{"include_usage":true}')
    if part.value is None:
        return _replaced(part, '{"include_usage":true}')
    text = request.text[part.start : part.end]
    for inner in reversed(members(text)):  # of a key given twice, the last counts
        if inner.key == "include_usage":
            return part.start + inner.start, part.start + inner.end, "true"
    comma = "," if part.value else ""
    return part.start + 1, part.start + 1, f'"include_usage":true{comma}'


def _wants_usage(parts: dict[str, Member]) -> bool:
    options = _value(parts, "stream_options")
    if options is None:
        return False
    if type(options) is not dict:
        raise InvalidInput("stream_options must be an object", field="stream_options")
    wanted = options.get("include_usage")
    if wanted is not None and type(wanted) is not bool:
        field = "stream_options.include_usage"
        raise InvalidInput(f"{field} must be true or false", field=field)
    return bool(wanted)


def _whole_number(parts: dict[str, Member], name: str, *, most: int) -> int | None:
    value = _value(parts, name)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= most:
        raise InvalidInput(f"{name} must be a whole number from 1 to {most}", field=name)
    return value


def _value(parts: dict[str, Member], name: str) -> Any:
    part = parts.get(name)
    return None if part is None else part.value
