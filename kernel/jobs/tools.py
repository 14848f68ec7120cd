"""One physical call of an HTTP tool: built from its row and the arguments, sent at most once (D3).

What went out is either the canonical text itself (methods with a body) or, for the others, one
query string made of it. What came back is classified by what it proves, not by how it looks (E2).
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from kernel import clock
from kernel.approvals.arguments import PLACEHOLDER
from kernel.conf import conf
from kernel.errors import BodyError, InvalidInput, NotSent, OutcomeUnknown
from kernel.http import AddressPolicy, Answer, Door, KeyFilter, key_to_send, read_body, view_utf8
from kernel.models import Tool

ANSWERED, NOT_SENT, UNCERTAIN = "answered", "not_sent", "uncertain"
BODYLESS = frozenset({"GET", "HEAD", "DELETE"})
# These statuses do not say whether the call took effect.
SAYS_NOTHING = frozenset({408, 409})
REMOVED = b"[tool key removed]"
LEASE_ENDED = "This process hung until its lease had ended; the call was not sent."


class _Number(str):
    """A number of the arguments, kept as it was written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """Everything one call needs. The key is read from the environment here, nowhere stored."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes | None
    policy: AddressPolicy
    deadline_seconds: float
    body_bytes_max: int
    secret: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What one call came to. `text` is the model's view of the body, `body_bytes` its true size.

    `answered`: a whole body that says what happened. `not_sent`: proven, no byte left.
    `uncertain`: it may have taken effect; `error_text` says what went wrong.
    """

    outcome: str
    http_status: int | None = None
    text: str = ""
    body_bytes: int | None = None
    error_code: str = ""
    error_text: str = ""
    is_for_good: bool = False  # not_sent, and trying again would not help


def build_request(
    *,
    tool: Tool,
    arguments_text: str,
    idempotency_key: str,
    environ: Mapping[str, str] = os.environ,
) -> ToolRequest:
    """The request for these canonical arguments. Pure but for the tool's key.

    InvalidInput when an argument cannot stand in the URL; NotSent when the key is missing.
    """
    given = _members(arguments_text)
    url, used = _filled(tool.url, given)
    headers = [(tool.idempotency_header, idempotency_key)] if tool.idempotency_header else []
    body = None
    if tool.method in BODYLESS:
        rest = [(name, _plain(value)) for name, value in given.items() if name not in used]
        if rest:
            url += ("&" if "?" in url else "?") + urlencode(rest, quote_via=quote)
    else:
        # The approved bytes are the bytes that leave, to the last one.
        body = arguments_text.encode()
        headers.append(("Content-Type", "application/json"))
    secret = ""
    if tool.secret_env:
        secret = key_to_send(
            tool.secret_env,
            field="secret_env",
            whose="tool",
            environ=environ,
            next_action="Set it where the product runs, and restart.",
        )
        bearer = tool.secret_header.lower() == "authorization" and " " not in secret
        headers.append((tool.secret_header, f"Bearer {secret}" if bearer else secret))
    return ToolRequest(
        method=tool.method,
        url=url,
        headers=tuple(headers),
        body=body,
        policy=AddressPolicy(allow_private=tool.allow_private),
        deadline_seconds=tool.deadline_seconds,
        body_bytes_max=tool.body_bytes_max or conf.tool_body_bytes_max,
        secret=secret.encode(),
    )


async def call_tool(
    *,
    door: Door,
    tool: Tool,
    arguments_text: str,
    idempotency_key: str,
    until: float,
    environ: Mapping[str, str] = os.environ,
) -> ToolAnswer:
    """Send one journaled call, at most once; read its whole body within the budget (E1, E2).

    Not sent at `until` (clock.monotonic) or later: others may have judged the call by then, and a
    person may have said that it was not done (D3). Never raises for what the network does; only a
    cancelled task leaves it without an answer.
    """
    if clock.monotonic() >= until:
        return ToolAnswer(NOT_SENT, error_code="lease_ended", error_text=LEASE_ENDED)
    try:
        request = build_request(
            tool=tool,
            arguments_text=arguments_text,
            idempotency_key=idempotency_key,
            environ=environ,
        )
        return await _send(door=door, request=request)
    except InvalidInput as error:
        code, why = error.error_code, error.message
        return ToolAnswer(NOT_SENT, error_code=code, error_text=why, is_for_good=True)
    except NotSent as error:
        return ToolAnswer(NOT_SENT, error_code=error.error_code, error_text=error.message)
    except OutcomeUnknown as error:
        status = error.details.get("status")
        code = error.details.get("reason") or error.error_code
        return ToolAnswer(UNCERTAIN, status, error_code=code, error_text=error.message)


async def _send(*, door: Door, request: ToolRequest) -> ToolAnswer:
    async with door.call(
        method=request.method,
        url=request.url,
        headers=request.headers,
        content=request.body,
        policy=request.policy,
        deadline_seconds=request.deadline_seconds,
        read_seconds=request.deadline_seconds,
        connect_seconds=min(conf.provider_connect_seconds, request.deadline_seconds),
    ) as answer:
        try:
            body = await read_body(answer, body_bytes_max=request.body_bytes_max)
        except BodyError as error:
            # A head without its body proves nothing about the call (E2).
            return _unclear(answer, error.error_code, error.message)
        text = _model_view(body, secret=request.secret)
        if answer.status in SAYS_NOTHING or answer.status >= 500:
            why = f"the tool answered {answer.status}"
            return _unclear(answer, "status", why, text=text, body_bytes=len(body))
        return ToolAnswer(ANSWERED, answer.status, text=text, body_bytes=len(body))


def _unclear(
    answer: Answer, code: str, why: str, *, text: str = "", body_bytes: int | None = None
) -> ToolAnswer:
    return ToolAnswer(UNCERTAIN, answer.status, text, body_bytes, code, why)


def _model_view(body: bytes, *, secret: bytes) -> str:
    """The body within the model's budget, without the tool's key should it quote that (E3)."""
    budget = conf.model_view_bytes_max
    # Only what can be shown is copied: a body may be as large as its own budget.
    head = body[: budget + len(secret) + 3]
    cut = KeyFilter(secret, mark=REMOVED)
    shown = cut.feed(head)
    if len(head) == len(body):  # else what is held may be the beginning of the key
        shown += cut.finish()
    return view_utf8(shown, budget).text


def _members(arguments_text: str) -> dict[str, Any]:
    value = json.loads(arguments_text, parse_int=_Number, parse_float=_Number)
    if type(value) is not dict:
        raise InvalidInput("the arguments must be one JSON object", field="arguments")
    return value


def _filled(url: str, given: Mapping[str, Any]) -> tuple[str, set[str]]:
    used: set[str] = set()

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        value = given.get(name)
        if value is None or isinstance(value, dict | list):
            raise InvalidInput(f"{name} stands in the URL, so it needs a value", field=name)
        text = _plain(value)
        if text.strip(".") == "":
            # "", "." and ".." would lead to another path than the one that was written down.
            raise InvalidInput(f"{name} stands in the URL and must not be {text!r}", field=name)
        used.add(name)
        return quote(text, safe="")

    return PLACEHOLDER.sub(fill, url), used


def _plain(value: Any) -> str:
    """One argument as the text of a URL part."""
    if isinstance(value, str):
        return value
    return _compact(value)


def _compact(value: Any) -> str:
    if isinstance(value, dict):
        parts = (f"{json.dumps(key)}:{_compact(part)}" for key, part in value.items())
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
