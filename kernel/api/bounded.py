"""The bound on request bodies, in front of the framework: too large is refused, nothing is stored.

Pure ASGI. A length that is too large is refused at once; a body without a length is counted while
it streams and cut. Unclear framing is refused, ambiguous header names are dropped (E5).
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# A socket closed with unread bytes is reset, and the client never sees why: what still comes is
# read and thrown away, this long and at most twice the bound.
LINGER_SECONDS = 2.0
DISCONNECT: Message = {"type": "http.disconnect"}


class BoundedBody:
    """Wraps an ASGI application; no request body larger than `body_bytes_max` reaches it.

    Refusals are JSON: 413 `body_too_large` (by length at once, else when the count passes the
    bound; what was read is discarded by the application, which sees a disconnect) and 400
    `bad_framing` (unclear Content-Length or Transfer-Encoding). Headers with an underscore are
    dropped: CGI names make `X_Real_IP` and `X-Real-IP` one.
    """

    def __init__(
        self, app: App, *, body_bytes_max: int, linger_seconds: float = LINGER_SECONDS
    ) -> None:
        self._app = app
        self._body_bytes_max = body_bytes_max
        self._linger_seconds = linger_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = [pair for pair in scope["headers"] if b"_" not in pair[0]]
        exchange = _Exchange(
            receive=receive,
            send=send,
            body_bytes_max=self._body_bytes_max,
            linger_seconds=0 if _has(headers, b"expect") else self._linger_seconds,
        )
        if not _framing_is_clear(headers):
            await exchange.refuse(400, _bad_framing())
        elif _length(headers) > self._body_bytes_max:
            await exchange.refuse(413, _too_large(self._body_bytes_max))
        else:
            await self._app({**scope, "headers": headers}, exchange.receive, exchange.send)


class _Exchange:
    """One request: counts what the application receives, speaks for it once it was refused."""

    def __init__(
        self, *, receive: Receive, send: Send, body_bytes_max: int, linger_seconds: float
    ) -> None:
        self._receive, self._send = receive, send
        self._body_bytes_max = body_bytes_max
        self._left = body_bytes_max
        self._linger_seconds = linger_seconds
        self._answer_began = False
        self._refused = False

    async def receive(self) -> Message:
        if self._refused:
            return DISCONNECT
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                await self.refuse(413, _too_large(self._body_bytes_max))
                return DISCONNECT
        return message

    async def send(self, message: Message) -> None:
        if not self._refused:
            self._answer_began = True
            await self._send(message)

    async def refuse(self, status: int, body: bytes) -> None:
        """Answer for the application, then read on for a moment so that the answer arrives."""
        if self._answer_began:
            # Too late for a status: the application sees a disconnect and ends its answer.
            return
        self._refused = True
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            (b"x-should-retry", b"false"),
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        if self._linger_seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._linger_seconds):
                    await self._discard()
        await self._send({"type": "http.response.body", "body": b""})

    async def _discard(self) -> None:
        left = 2 * self._body_bytes_max
        while left >= 0:
            message = await self._receive()
            if message["type"] != "http.request" or not message.get("more_body"):
                return
            left -= len(message.get("body", b""))


Pairs = Iterable[tuple[bytes, bytes]]


def _has(headers: Pairs, name: bytes) -> bool:
    return any(key == name for key, _ in headers)


def _framing_is_clear(headers: Pairs) -> bool:
    """One length in digits, or chunked, or neither. Two readers may read anything else two ways."""
    lengths = [value for key, value in headers if key == b"content-length"]
    codings = [value.strip().lower() for key, value in headers if key == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        return False
    # isdigit() of bytes is ASCII only: no sign, no underscore, no comma, no space.
    return all(value.isdigit() for value in lengths) and all(one == b"chunked" for one in codings)


def _length(headers: Pairs) -> int:
    digits = next((value for key, value in headers if key == b"content-length"), b"0")
    digits = digits.lstrip(b"0") or b"0"
    # int() itself refuses thousands of digits; twenty are more than any real size.
    return int(digits[:20])


def _too_large(body_bytes_max: int) -> bytes:
    return _error(
        "body_too_large",
        f"The request body is larger than {body_bytes_max} bytes.",
        "Send a smaller body; the same body will be refused again.",
    )


def _bad_framing() -> bytes:
    return _error(
        "bad_framing",
        "The length of the request body is not clear.",
        "Send one Content-Length in digits, or Transfer-Encoding: chunked, not both.",
    )


def _error(code: str, message: str, next_action: str) -> bytes:
    error = {"code": code, "message": message, "retryable": False, "next_action": next_action}
    return json.dumps({"error": error}).encode()
