"""One connection: dialled on a checked address, read under a deadline, aware of its first write.

A `Wire` is what the HTTP/1.1 layer reads from and writes to. It knows three things that a library's
own stream hides: whether any byte of the current request was handed to the socket (only then is
"not sent" no longer provable, A5), whether the idle connection is still clean, and how to let go
of the socket without awaiting anything, so that a cancelled call cannot leak it.
"""

import asyncio
import contextlib
import math
import select
import ssl
from typing import Any, cast

from kernel.errors import NotSent
from kernel.http.addresses import AddressPolicy, Resolve, Target, checked_addresses

BUFFER_BYTES_MAX = 64 * 1024


class WireClosed(Exception):
    """The peer had closed before the first byte of this request: nothing was written."""


class Wire(asyncio.Protocol):
    """A socket with `read`, `write`, `aclose`: the network stream of httpcore's connection.

    Reads raise TimeoutError (silence or deadline) and ConnectionError; the end is b"".
    """

    def __init__(self, *, write_error: type[Exception]):
        self.wrote = False
        self.heard = False
        self.deadline_at = math.inf
        self._write_error = write_error
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._ended = False
        self._error: Exception | None = None
        self._read_waiter: asyncio.Future[None] | None = None
        self._write_waiter: asyncio.Future[None] | None = None
        self._write_paused = False

    def start_request(self, *, deadline_at: float) -> None:
        """A new request begins on this wire; `deadline_at` is in loop time."""
        self.wrote = self.heard = False
        self.deadline_at = deadline_at

    def timeout_reason(self) -> str:
        """Which limit a TimeoutError of this wire was: "deadline" or "silence"."""
        late = asyncio.get_running_loop().time() >= self.deadline_at
        return "deadline" if late else "silence"

    # --- called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > BUFFER_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()
        _wake(self._read_waiter)

    def eof_received(self) -> bool:
        self._ended = True
        _wake(self._read_waiter)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        # Keep what abort() noted: a loss must never look like an end.
        self._error = self._error or exc
        _wake(self._read_waiter)
        _wake(self._write_waiter)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        _wake(self._write_waiter)

    # --- called by the HTTP/1.1 layer ---

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        loop = asyncio.get_running_loop()
        if loop.time() >= self.deadline_at:
            raise TimeoutError
        if not self._buffer and not self._ended:
            self._read_waiter = loop.create_future()
            try:
                async with asyncio.timeout_at(self._until(timeout)):
                    await self._read_waiter
            finally:
                self._read_waiter = None
        if self._buffer:
            self.heard = True
            data = bytes(self._buffer[:max_bytes])
            del self._buffer[:max_bytes]
            # A reader that is slower than the peer must not fill the memory.
            is_low = len(self._buffer) <= BUFFER_BYTES_MAX
            if is_low and not self._ended and self._transport is not None:
                self._transport.resume_reading()
            return data
        if self._error is not None:
            raise ConnectionResetError("the connection is gone") from self._error
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not self.wrote and (self._ended or self._buffer):
            raise WireClosed
        # From here on the peer may have the request, whatever happens next.
        self.wrote = True
        if self._ended or self._transport is None:
            raise self._write_error("the peer closed the connection while the request was sent")
        self._transport.write(buffer)
        while self._write_paused and not self._ended:
            self._write_waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout_at(self._until(timeout)):
                    await self._write_waiter
            finally:
                self._write_waiter = None

    async def aclose(self) -> None:
        self.abort()

    def get_extra_info(self, info: str) -> Any:
        """Only `is_readable` is asked for: on an idle connection it means "not clean any more"."""
        return self._is_readable() if info == "is_readable" else None

    # --- for the door ---

    def abort(self) -> None:
        """Let go of the socket, now and for good; never waits. A reader gets an error, no end."""
        self._ended = True
        self._error = self._error or ConnectionAbortedError("closed by us")
        self._buffer.clear()
        if self._transport is not None:
            self._transport.abort()
        _wake(self._read_waiter)
        _wake(self._write_waiter)

    def _is_readable(self) -> bool:
        if self._ended or self._buffer or self._transport is None or self._transport.is_closing():
            return True
        # The loop may not have seen a FIN that the kernel already has.
        sock = self._transport.get_extra_info("socket")
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def _until(self, timeout: float | None) -> float:
        if timeout is None:
            return self.deadline_at
        return min(self.deadline_at, asyncio.get_running_loop().time() + timeout)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


async def dial(
    target: Target,
    *,
    policy: AddressPolicy,
    resolve: Resolve,
    tls: ssl.SSLContext,
    until: float,
    write_error: type[Exception],
) -> Wire:
    """Resolve, check and connect, all before `until` (loop time). Nothing of a request is sent.

    Every address is checked before the first is dialled; they are tried in order, each with an
    equal part of the time left. Raises AddressRefused or NotSent (dns, connect, tls, timeout).
    """
    try:
        async with asyncio.timeout_at(until):
            addresses = await checked_addresses(target, policy=policy, resolve=resolve)
    except TimeoutError:
        raise NotSent(f"{target.host} was not resolved in time", reason="dns") from None
    failure = NotSent(f"no connection to {target.origin}", reason="connect")
    for position, address in enumerate(addresses):
        now = asyncio.get_running_loop().time()
        part = now + (until - now) / (len(addresses) - position)
        try:
            async with asyncio.timeout_at(part):
                return await _connect(target, address, tls=tls, write_error=write_error)
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", "") or error.reason or "handshake failed"
            raise NotSent(f"no TLS with {target.origin}: {why}", reason="tls") from None
        except TimeoutError:
            failure = NotSent(f"no connection to {target.origin} in time", reason="timeout")
        except OSError as error:
            why = error.strerror or type(error).__name__
            failure = NotSent(f"no connection to {target.origin}: {why}", reason="connect")
    raise failure


async def _connect(
    target: Target, address: str, *, tls: ssl.SSLContext, write_error: type[Exception]
) -> Wire:
    wire = Wire(write_error=write_error)
    secure = target.scheme == "https"
    try:
        await asyncio.get_running_loop().create_connection(
            lambda: wire,
            address,
            target.port,
            ssl=tls if secure else None,
            server_hostname=target.host if secure else None,
        )
    except BaseException:
        with contextlib.suppress(Exception):
            wire.abort()
        raise
    return wire
