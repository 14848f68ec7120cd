"""The web server's HTTP parser, with bounds in bytes and in time that uvicorn does not set."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kernel.conf import conf

HEAD_TOO_LARGE = b"431 Request Header Fields Too Large"
TOO_SLOW = b"408 Request Timeout"


class BoundedProtocol(HttpToolsProtocol):
    """Ends a connection whose request is too large in its head, or too slow in coming (E5).

    Parsing a long head costs its square; without a bound (`request_head_bytes_max`) one stranger
    could hold the event loop, and with it every lease renewal. A request that is sent drop by drop
    holds a socket and its buffers: its head has `request_head_seconds`, counted from the start of
    the connection or its first byte, its body another `request_body_seconds`. Between two requests
    uvicorn's own timeout counts. What was cut admits nothing.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_within(conf.request_head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            if self._deadline is None:
                self._expect_within(conf.request_head_seconds)
            end = data.find(b"\r\n\r\n")  # one read may bring the whole head, and more
            if end >= 0 and self._head_bytes - len(data) + end > conf.request_head_bytes_max:
                self._end(HEAD_TOO_LARGE)
                return
        super().data_received(data)
        if self._in_head and self._head_bytes > conf.request_head_bytes_max:
            self._end(HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = max(self._head_bytes, 1)  # it may begin behind the end of another
        if self._deadline is None:
            self._expect_within(conf.request_head_seconds)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        self._expect_within(conf.request_body_seconds)

    def on_message_complete(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._expect_nothing()
        super().on_message_complete()

    def _expect_within(self, seconds: float) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused or (self._in_head and self._is_answering()):
            # We do not read, or an earlier request is not answered yet: the peer is not to blame.
            self._expect_within(conf.request_head_seconds)
            return
        self._end(TOO_SLOW)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _end(self, status: bytes) -> None:
        """Close; say why where that cannot be taken for the answer to another request."""
        begun = self._head_bytes > 0 and not self._is_answering()
        unanswered = self._is_answering() and not self.cycle.response_started
        if begun if self._in_head else unanswered:
            self.transport.write(
                b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
        self.transport.close()
