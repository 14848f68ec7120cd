"""Bounded bodies: decoded bytes are counted while they come out of the decoder.

A compression bomb is stopped inside the decoder: no call to zlib may produce more than one piece,
and the piece that passes the budget is thrown away (E1). Views for the model and for audit have
their own budgets (E3).
"""

import io
import re
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from kernel.errors import BodyBroken, BodyTooLarge

PIECE_BYTES = 64 * 1024
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class BodyDecoder:
    """Encoded pieces in, decoded pieces of at most 64 KiB out; both sides are counted.

    Knows identity, gzip and deflate (with or without the zlib wrapper). Bytes behind the end of
    compressed data, a second gzip member included, are refused: they are how a second body hides.
    """

    def __init__(self, *, encodings: Iterable[str] = (), body_bytes_max: int):
        """`encodings`: Content-Encoding values. Raises BodyBroken on stacked or unknown ones."""
        self._left = body_bytes_max
        self._encoded_left = body_bytes_max
        self.body_bytes_max = body_bytes_max
        names = [one.strip().lower() for value in encodings for one in value.split(",")]
        names = [one for one in names if one not in ("", "identity")]
        if len(names) > 1:
            raise BodyBroken("stacked content encodings are refused", reason="encoding")
        self._name = names[0].removeprefix("x-") if names else "identity"
        if self._name not in ("identity", "gzip", "deflate"):
            raise BodyBroken("the content encoding is not known", reason="encoding")
        self._inflater = zlib.decompressobj(31) if self._name == "gzip" else None
        self._head = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode one piece. Raises BodyTooLarge past the budget, BodyBroken on invalid data."""
        # Encoded bytes count too: empty compressed blocks would otherwise come for free.
        self._encoded_left -= len(data)
        if self._encoded_left < 0:
            raise self._too_large()
        if self._name == "identity":
            if data:
                yield data
            return
        if self._inflater is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            self._inflater = zlib.decompressobj(15 if _has_zlib_header(data) else -15)
        try:
            yield from self._inflate(self._inflater, data)
        except zlib.error:
            raise BodyBroken(f"the body is not valid {self._name}", reason="encoding") from None

    def _inflate(self, inflater: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
        more = True
        while more and not inflater.eof:
            room = min(PIECE_BYTES, self._left + 1)
            piece = inflater.decompress(data, room)
            self._left -= len(piece)
            if self._left < 0:
                raise self._too_large()
            if piece:
                yield piece
            data = inflater.unconsumed_tail
            # A full piece may leave more inside zlib although all input is consumed.
            more = bool(data) or len(piece) == room
        if inflater.eof and (data or inflater.unused_data):
            raise BodyBroken("bytes behind the end of the compressed body", reason="trailing")

    def finish(self) -> None:
        """The transport saw the end. Raises BodyBroken unless the compressed data ended as well."""
        if self._name == "identity" or self._encoded_left == self.body_bytes_max:
            return
        if self._inflater is None or not self._inflater.eof:
            raise BodyBroken(f"the {self._name} data is truncated", reason="truncated")

    def _too_large(self) -> BodyTooLarge:
        return too_large(self.body_bytes_max)


def too_large(body_bytes_max: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body is larger than {body_bytes_max} bytes", body_bytes_max=body_bytes_max
    )


def _has_zlib_header(data: bytes) -> bool:
    return data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0


class ChunkedAnswer(Protocol):
    """What `read_body` needs of an answer."""

    def chunks(self, *, body_bytes_max: int, require_end: bool = True) -> AsyncIterator[bytes]: ...


async def read_body(
    response: ChunkedAnswer, *, body_bytes_max: int, require_end: bool = True
) -> bytes:
    """The whole decoded body, or an error and nothing (E1).

    Raises BodyTooLarge, BodyBroken (truncated, invalid, or with `require_end` an end that only the
    closing of the connection shows) and OutcomeUnknown (deadline, silence).
    """
    # BytesIO hands its buffer over without a second copy: the peak stays near the budget.
    whole = io.BytesIO()
    async for chunk in response.chunks(body_bytes_max=body_bytes_max, require_end=require_end):
        whole.write(chunk)
    return whole.getvalue()


@dataclass(frozen=True, slots=True)
class View:
    """A text of at most the budget in UTF-8 bytes, and the size of what it stands for."""

    text: str
    shown_bytes: int
    true_bytes: int
    cut: bool


def view_utf8(data: bytes | str, bytes_max: int) -> View:
    """What a model or an auditor sees of a body (E3). Bytes that are not UTF-8 show as U+FFFD.

    The text ends on a character border; `shown_bytes` is its own UTF-8 size, `true_bytes` that of
    `data`. Escaping for a page is the console's business.
    """
    if isinstance(data, str):
        true_bytes = len(data.encode("utf-8", "surrogatepass"))
        text, rest = LONE_SURROGATE.sub("\ufffd", data[:bytes_max]), len(data) > bytes_max
    else:
        true_bytes = len(data)
        # A character is at most four bytes: with the next three, none is cut by this slice.
        text, rest = data[: bytes_max + 3].decode("utf-8", "replace"), len(data) > bytes_max + 3
    encoded = text.encode()
    if len(encoded) <= bytes_max and not rest:
        return View(text, len(encoded), true_bytes, cut=False)
    kept = encoded[:bytes_max].decode("utf-8", "ignore")
    return View(kept, len(kept.encode()), true_bytes, cut=True)
