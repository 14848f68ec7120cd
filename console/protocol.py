"""The web server's HTTP parser, with a bound on a request's head that uvicorn does not set."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kernel.conf import conf

TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class BoundedHeadProtocol(HttpToolsProtocol):
    """Closes a connection whose request line and headers pass `request_head_bytes_max` (E5).

    Parsing a long head costs its square; without a bound one stranger could hold the event loop,
    and with it every lease renewal.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > conf.request_head_bytes_max:
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()
