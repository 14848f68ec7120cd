"""An answer while it arrives: the head at once, the body as bounded pieces, the end proven.

Leaving an answer early closes its connection; only one that was read to a proven end, with nothing
behind it, lets the connection be used again.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from kernel.errors import BodyBroken, OutcomeUnknown, PeerError
from kernel.http.addresses import AddressPolicy
from kernel.http.bodies import BodyDecoder, too_large
from kernel.http.headers import Headers, response_headers
from kernel.http.wire import Wire

Key = tuple[str, str, int, AddressPolicy]


@dataclass(slots=True, eq=False)
class Link:
    """A connection and where it leads. Only calls with an equal key may share it."""

    key: Key
    connection: Any
    wire: Wire
    method: str = ""
    reused: bool = False


class Answer:
    """The head of an answer, and its body as bounded, decoded chunks.

    `headers` has lower-case names. `ended_by_close`: the body has neither a length nor chunks, so
    that its end cannot be told from a loss.
    """

    def __init__(
        self,
        *,
        link: Link,
        response: Any,
        keep: Callable[[Link], None],
        drop: Callable[[Link], None],
    ):
        if response.status < 200:
            raise OutcomeUnknown("bad response: protocol switch", reason="bad_response")
        self.status: int = response.status
        self.headers: Headers = response_headers(response.headers, status=response.status)
        self._keep, self._drop = keep, drop
        self._link = link
        self._response = response
        self._raw = aiter(response.stream)
        self._read_began = False
        self._ended = False
        self._has_body = link.method != "HEAD" and response.status not in (204, 304)
        chunked = self.header("transfer-encoding") is not None
        length = self.header("content-length")
        self._length = int(length) if length is not None and not chunked else None
        self.ended_by_close = self._has_body and not chunked and length is None

    def header(self, name: str) -> str | None:
        """The first value of this header, None without one."""
        return next(iter(self.header_values(name)), None)

    def header_values(self, name: str) -> list[str]:
        """All values of this header, in order."""
        return [value for key, value in self.headers if key == name.lower()]

    async def chunks(
        self, *, body_bytes_max: int, require_end: bool = True
    ) -> AsyncIterator[bytes]:
        """Decoded pieces, at most `body_bytes_max` bytes in all; once per answer.

        Raises BodyTooLarge (at once where Content-Length says so), BodyBroken (truncated,
        connection lost, wrong encoding; with `require_end` also an end shown only by closing) and
        OutcomeUnknown (deadline, silence). After any of them the connection is gone (E1).
        """
        if self._read_began:
            raise RuntimeError("the body was read already")
        self._read_began = True
        try:
            if self._has_body and self._length is not None and self._length > body_bytes_max:
                raise too_large(body_bytes_max)
            decoder = BodyDecoder(
                encodings=self.header_values("content-encoding"), body_bytes_max=body_bytes_max
            )
            while (data := await self._next()) is not None:
                for piece in decoder.feed(data):
                    yield piece
            decoder.finish()
            if require_end and self.ended_by_close:
                why = "the body ends with the connection: its end is not proven"
                raise BodyBroken(why, reason="ended_by_close", status=self.status)
            await self._end()
        except PeerError:
            self._link.wire.abort()
            raise

    async def _next(self) -> bytes | None:
        try:
            return await anext(self._raw)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            reason = self._link.wire.timeout_reason()
            why = f"the answer did not end in time ({reason})"
            raise OutcomeUnknown(why, reason=reason, status=self.status) from None
        except Exception as error:
            why = "the connection ended, or broke the protocol, before the end of the body"
            raise BodyBroken(why, reason="truncated", status=self.status) from error

    async def _end(self) -> None:
        # Bytes behind the answer would be read as the answer to the next request.
        clean = not self._link.connection._h11_state.trailing_data[0]
        await self._response.aclose()
        self._ended = True
        (self._keep if clean else self._drop)(self._link)

    async def close(self) -> None:
        """Give up what was not read. Idempotent; never waits for the peer."""
        if self._ended:
            return
        self._ended = True
        self._drop(self._link)
        # RuntimeError: another task is reading; dropping the link has ended its read.
        with contextlib.suppress(RuntimeError):
            await self._raw.aclose()
