"""HTTP/1.1 on one wire: the request in one write, the answer read by llhttp (httptools).

One answer is parsed by one parser, which is then thrown away: nothing is carried to the next.
"""

import asyncio

import httptools

from kernel.http.wire import Wire, WriteFailed

READ_BYTES = 64 * 1024
# Bytes that bring no body: the head, chunk sizes, trailers. A peer may not send them without end.
OVERHEAD_BYTES_MAX = 100 * 1024
# Above this the head and the content are not copied together; they go out in two writes.
ONE_WRITE_BYTES_MAX = 64 * 1024

Pairs = list[tuple[bytes, bytes]]


class ProtocolBroken(Exception):
    """The peer broke HTTP/1.1, or went away in the middle of an answer."""


class Exchange:
    """The HTTP side of a kept connection: one request and its whole answer after another.

    Reads raise ProtocolBroken, TimeoutError and ConnectionError; writes raise WireClosed where
    nothing was written.
    """

    def __init__(self, wire: Wire, *, idle_seconds: float):
        self._wire = wire
        self._idle_seconds = idle_seconds
        self._expires_at = 0.0
        self._read_seconds = 0.0
        self._overhead_bytes = 0
        self._parser = _AnswerParser(method="")

    async def send(
        self, *, method: str, head: bytes, content: bytes | None, read_seconds: float
    ) -> tuple[int, Pairs]:
        """Write one request, once; returns the status and the headers of its answer."""
        self._parser = _AnswerParser(method=method)
        self._read_seconds = read_seconds
        self._overhead_bytes = 0
        try:
            if content and len(content) > ONE_WRITE_BYTES_MAX:
                await self._wire.write(head, read_seconds)
                await self._wire.write(content, read_seconds)
            else:
                await self._wire.write(head + content if content else head, read_seconds)
        except WriteFailed:
            # A peer that refuses early closes while we write; its answer may be there.
            pass
        while not self._parser.head_ended:
            await self._receive()
        return self._parser.status, self._parser.headers

    async def next_piece(self) -> bytes | None:
        """The next bytes of the body as sent, None at its end."""
        parser = self._parser
        while not parser.pieces:
            if parser.ended:
                return None
            await self._receive()
        piece = parser.pieces[0] if len(parser.pieces) == 1 else b"".join(parser.pieces)
        parser.pieces.clear()
        return piece

    def rest(self) -> bool:
        """The answer was read to its end: whether the connection may carry another request."""
        self._expires_at = asyncio.get_running_loop().time() + self._idle_seconds
        return self._parser.keep and not self._wire.is_readable()

    def has_expired(self) -> bool:
        """Whether the idle connection is too old, or not clean any more."""
        now = asyncio.get_running_loop().time()
        return now >= self._expires_at or self._wire.is_readable()

    async def _receive(self) -> None:
        parser = self._parser
        if parser.error is not None:
            raise ProtocolBroken("the answer is not HTTP/1.1") from parser.error
        data = await self._wire.read(READ_BYTES, self._read_seconds)
        if data:
            parser.feed(data)
            self._overhead_bytes = 0 if parser.pieces else self._overhead_bytes + len(data)
            if self._overhead_bytes > OVERHEAD_BYTES_MAX and not parser.ended:
                raise ProtocolBroken("too many bytes that are no body")
        elif parser.ends_by_close:
            parser.ended = True
        else:
            raise ProtocolBroken("the connection ended before the answer did")


class _AnswerParser:
    """Reads one answer, strictly: what is left of it, and whether its connection is still clean.

    Interim answers (1xx but 101) are skipped. An error behind the head is kept until the pieces
    before it were taken.
    """

    def __init__(self, *, method: str) -> None:
        self.status = 0
        self.headers: Pairs = []
        self.pieces: list[bytes] = []
        self.head_ended = False
        self.ended = False
        self.ends_by_close = False
        self.keep = False
        self.error: Exception | None = None
        self._method = method
        self._parser = httptools.HttpResponseParser(self)
        # With both framings the chunks win, as everywhere; such a connection is not kept.
        self._parser.set_dangerous_leniencies(lenient_chunked_length=True)

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self.ended:
                self.keep = False
            elif self.head_ended:
                self.error = error
            else:
                raise ProtocolBroken("the answer is not HTTP/1.1") from error
        except httptools.HttpParserUpgrade:
            self.keep = False

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        if self.ended:
            # Bytes behind the answer: they must never become the answer to the next request.
            self.keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_ended:  # else it is a trailer
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.head_ended:
            return
        self.status = self._parser.get_status_code()
        if 100 <= self.status < 200 and self.status != 101:
            return
        length = [value for name, value in self.headers if name.lower() == b"content-length"]
        coding = [value for name, value in self.headers if name.lower() == b"transfer-encoding"]
        if coding and [value.strip().lower() for value in coding] != [b"chunked"]:
            raise ProtocolBroken("a transfer encoding other than chunked")
        self.head_ended = True
        self.keep = self._parser.should_keep_alive() and not (length and coding)
        self.ends_by_close = not length and not coding
        if self._method == "HEAD":
            # The parser does not know that no body follows; the connection is not used again.
            self.ended, self.keep = True, False

    def on_body(self, data: bytes) -> None:
        if not self.ended:
            self.pieces.append(data)

    def on_message_complete(self) -> None:
        if self.head_ended:
            self.ended = True
        else:
            self.headers.clear()


def request_head(*, method: str, path: str, headers: Pairs) -> bytes:
    """The request line and the headers as bytes; every part was checked before."""
    lines = [b"%s %s HTTP/1.1" % (method.encode("ascii"), path.encode("ascii"))]
    lines += [b"%s: %s" % pair for pair in headers]
    return b"\r\n".join((*lines, b"", b""))
