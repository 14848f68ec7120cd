"""What lies outside a history's kernels: a provider, a business service, a receiver of messages.

Each call is written down before anything is answered; that list is the truth about calls. What a
call meets is planned by the history, one call at a time; without a plan it is answered well. A held
call is answered when the history says so, whatever became of its caller.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernel.errors import BodyBroken, NotSent, OutcomeUnknown
from tests.support.agent import call as model_call
from tests.support.agent import completion

if TYPE_CHECKING:
    from tests.support.history_process import Process

PROVIDER, SHOP, RECEIVER = "provider", "shop", "receiver"
OK, HOLD, LOST, CUT, UNSENT = "ok", "hold", "lost", "cut", "unsent"
REFUSED, BUSY, NO_USAGE, GONE = "refused", "busy", "no_usage", "gone"
# What the next call of each may meet.
HOWS = {
    PROVIDER: (OK, HOLD, LOST, CUT, REFUSED, BUSY, NO_USAGE, UNSENT),
    SHOP: (OK, HOLD, LOST, CUT, REFUSED, BUSY, UNSENT),
    RECEIVER: (OK, HOLD, LOST, REFUSED, GONE, UNSENT),
}
STATUS = {REFUSED: 422, BUSY: 503, GONE: 410}
KEY_OF = {PROVIDER: "idempotency-key", SHOP: "idempotency-key", RECEIVER: "webhook-id"}
PROVIDER_URL, SHOP_URL = "http://127.0.0.1:9/v1", "http://127.0.0.1:9/refunds"
RECEIVER_URL = "http://127.0.0.1:9/hooks"
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


@dataclass
class Call:
    """One physical call. `seen` is the committed row behind it, as it was when the call arrived."""

    number: int
    kind: str
    key: str
    headers: dict[str, str]
    body: bytes
    process: int
    seen: dict[str, Any]
    met: str = HOLD  # how it was answered, HOLD while it is not
    held: "asyncio.Future[str] | None" = None
    said: bytes = b""  # the body of the answer, as far as it was sent


@dataclass
class Outside:
    """Everything that was called, and what comes next."""

    look: Callable[[str, str], dict[str, Any]]
    calls: list[Call] = field(default_factory=list)
    plans: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in HOWS})
    met: Counter[str] = field(default_factory=Counter)

    def door(self, process: "Process") -> "DoorDouble":
        """The network as one process sees it."""
        return DoorDouble(self, process)

    def plan(self, kind: str, how: str) -> None:
        """What the next unplanned call of this kind meets."""
        if how != OK or self.plans[kind]:
            self.plans[kind].append(how)

    @property
    def held(self) -> list[Call]:
        return [call for call in self.calls if call.held is not None and not call.held.done()]

    def answer(self, call: Call, how: str) -> None:
        """Answer a held call."""
        assert call.held is not None
        call.held.set_result(how)

    def of(self, kind: str) -> list[Call]:
        return [call for call in self.calls if call.kind == kind]


class DoorDouble:
    """Stands for kernel/http/client.py: one call, one line, one answer or error."""

    def __init__(self, outside: Outside, process: "Process"):
        self._outside, self._process = outside, process

    @asynccontextmanager
    async def call(
        self,
        *,
        method: str,
        url: str,
        headers: Iterable[tuple[str, str]] = (),
        content: bytes | None = None,
        policy: Any,
        deadline_seconds: float,
        read_seconds: float,
        connect_seconds: float,
    ) -> AsyncIterator["AnswerDouble"]:
        kind = _kind(url)
        plans = self._outside.plans[kind]
        how = plans.pop(0) if plans else OK
        self._outside.met[f"{kind} {how}"] += 1
        if how == UNSENT:
            raise NotSent("connection refused", reason="connect")
        call = self._arrived(kind, {name.lower(): value for name, value in headers}, content or b"")
        if how == HOLD:
            how = await self._held(call, min(deadline_seconds, read_seconds))
        call.met = how
        if how == LOST:
            raise OutcomeUnknown("closed without an answer", reason="connection_lost")
        yield answer_to(call, how)

    async def _held(self, call: Call, seconds: float) -> str:
        call.held = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                return await call.held
        except TimeoutError:
            call.met = LOST
            raise OutcomeUnknown("no answer in time", reason="deadline") from None

    def _arrived(self, kind: str, headers: dict[str, str], body: bytes) -> Call:
        key = headers.get(KEY_OF[kind], "")
        number = len(self._outside.calls)
        seen = self._outside.look(kind, key)
        call = Call(number, kind, key, headers, body, self._process.number, seen)
        self._outside.calls.append(call)
        return call

    async def aclose(self) -> None:
        """Nothing is kept open."""


class AnswerDouble:
    """The head of an answer and its body in two pieces; `cut` ends it in the middle."""

    ended_by_close = False

    def __init__(self, status: int, body: bytes, *, cut: bool = False, content_type: str):
        self.status, self._body, self._cut = status, body, cut
        self.headers = [("content-type", content_type), ("content-length", str(len(body)))]

    def header(self, name: str) -> str | None:
        return next(iter(self.header_values(name)), None)

    def header_values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name.lower()]

    async def chunks(
        self, *, body_bytes_max: int, require_end: bool = True
    ) -> AsyncIterator[bytes]:
        middle = len(self._body) // 2
        yield self._body[:middle]
        if self._cut:
            raise BodyBroken("the connection ended", reason="truncated", status=self.status)
        yield self._body[middle:]


def answer_to(call: Call, how: str) -> AnswerDouble:
    """The answer that `how` stands for. Its bytes name the call, so that two calls never agree."""
    status, content_type = STATUS.get(how, 200), "application/json"
    if status >= 400:
        body = json.dumps({"error": {"message": f"no, {call.number}"}}).encode()
    elif call.kind == PROVIDER:
        body, content_type = _generated(call, how)
    else:
        body = json.dumps({"done": call.number}).encode()
    call.said = body
    return AnswerDouble(status, body, cut=how == CUT, content_type=content_type)


def _generated(call: Call, how: str) -> tuple[bytes, str]:
    request = json.loads(call.body)
    if request.get("stream"):
        return _stream(call, how), "text/event-stream"
    prompt = request["messages"][-1]
    wanted = _wanted(request["messages"])
    calls = [model_call("refund", {"amount": n}, f"c{call.number}.{n}") for n in wanted]
    body = completion(f"answer {call.number}: {prompt.get('content')}", calls or None)
    if how == NO_USAGE:
        value = json.loads(body)
        del value["usage"]
        body = json.dumps(value).encode()
    return body, "application/json"


def _wanted(messages: list[dict[str, Any]]) -> list[int]:
    """An agent's prompt names the refunds of each step: `refund 5 6, 7`; then it is done."""
    prompt = next((m["content"] for m in messages if m["role"] == "user"), "")
    if not str(prompt).startswith("refund "):
        return []
    rounds = sum(1 for message in messages if message.get("tool_calls"))
    steps = str(prompt).removeprefix("refund ").split(",")
    return [int(amount) for amount in steps[rounds].split()] if rounds < len(steps) else []


def _stream(call: Call, how: str) -> bytes:
    delta = {"index": 0, "delta": {"content": f"answer {call.number}"}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    events: list[dict[str, Any]] = [{"choices": [delta]}, {"choices": [end]}]
    if how != NO_USAGE:
        events.append({"choices": [], "usage": USAGE})
    for event in events:
        event |= {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1}
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def _kind(url: str) -> str:
    if url.startswith(PROVIDER_URL):
        return PROVIDER
    return SHOP if url.startswith(SHOP_URL) else RECEIVER
