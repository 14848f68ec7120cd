"""Server-sent events as bytes: where events end, over any chunk border, without changing a byte."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kernel.conf import conf

# Two line ends in a row end an event. A lone \r at the end of the buffer may still become \r\n.
_END_LIVE = re.compile(rb"(?>\r\n|\n|\r(?!\Z))(?>\r\n|\n|\r(?!\Z))")
_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LOOK_BACK_BYTES = 3  # an end has at most 4 bytes
_USUAL_ENDS = (b"\n\n", b"\r\n\r\n")
_PAIRS = (b"\n\n", b"\n\r", b"\r\r")  # the middle of every end; \r\n alone is one line end
LINE_ENDS = b"\r\n"
BOM = b"\xef\xbb\xbf"


class Piece(NamedTuple):
    """Bytes that are ready: whole events, or (not whole) a part of an event over the limit."""

    whole: bool
    data: bytes


class EventSplitter:
    """Cuts a byte stream after whole events and keeps at most one unfinished event.

    An event over conf.stream_event_bytes_max is passed on in parts and sets `oversize`. The pieces,
    joined, are the bytes that came in; which events are whole does not depend on the chunks.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._scanned = 0
        self._skipping = False  # inside an event over the limit; _held is what was just given
        self._limit = conf.stream_event_bytes_max
        self.oversize = False

    def push(self, chunk: bytes) -> Sequence[Piece]:
        """Take bytes; give the pieces that are ready now, in order."""
        if not self._held and chunk.endswith(_USUAL_ENDS) and len(chunk) <= self._limit:
            return (Piece(True, chunk),)  # the usual case: whole events, nothing left over
        pieces: list[Piece] = []
        if self._skipping:
            pieces.append(Piece(False, self._skip(chunk)))
        else:
            self._held += chunk
        if self._skipping:
            return pieces
        pieces += self._sorted_by_size(self._cut())
        if len(self._held) > self._limit:
            pieces.append(Piece(False, bytes(self._held)))
            self.oversize = self._skipping = True
            del self._held[:-_LOOK_BACK_BYTES]
        return pieces

    def rest(self) -> bytes:
        """The unfinished last event, b'' when there is none. The stream has ended."""
        held = b"" if self._skipping else bytes(self._held)
        self._held.clear()
        return held

    def _cut(self) -> bytes:
        held = self._held
        start = max(0, self._scanned - _LOOK_BACK_BYTES)
        end = max(_last_end(held, pair, start) for pair in _PAIRS)
        while end < len(held) and held[end] in LINE_ENDS:
            end += 1  # line ends before an event belong to no event
        events = bytes(held[:end])
        del held[:end]
        self._scanned = len(held)
        return events

    def _sorted_by_size(self, events: bytes) -> list[Piece]:
        if len(events) <= self._limit:
            return [Piece(True, events)] if events else []
        pieces = [Piece(len(event) <= self._limit, event) for event in split_events(events)]
        self.oversize |= not all(piece.whole for piece in pieces)
        return pieces

    def _skip(self, chunk: bytes) -> bytes:
        """Bytes of the event that is skipped; after its end, the rest of the chunk is held."""
        given = len(self._held)
        self._held += chunk
        found = _END_LIVE.search(self._held)
        end = found.end() if found else len(self._held)
        passed = bytes(self._held[given:end])
        if found:
            del self._held[:end]
            self._skipping, self._scanned = False, 0
        else:
            del self._held[:-_LOOK_BACK_BYTES]
        return passed


def _last_end(held: bytearray, pair: bytes, start: int) -> int:
    """Where the last event ends that ends with this pair; 0 when none does, or not for certain."""
    end = held.rfind(pair, start) + 2
    if pair[1:] == b"\r" and end == len(held):  # may become \r\n: wait for the next byte
        end = held.rfind(pair, start, end - 1) + 2
    if end < 2:
        return 0
    return end + 1 if pair[1:] == b"\r" and held[end : end + 1] == b"\n" else end


def split_events(events: bytes) -> Iterator[bytes]:
    """The single events in the bytes of whole events, each with its end; stray line ends apart."""
    at, plain = 0, b"\r" not in events
    while at < len(events):
        start = at
        while at < len(events) and events[at] in LINE_ENDS:
            at += 1
        if at > start:
            yield events[start:at]
        if at == len(events):
            return
        if plain:
            end = events.find(b"\n\n", at) + 2
        else:
            found = _END.search(events, at)
            end = found.end() if found else 0
        end = end if end > 1 else len(events)
        yield events[at:end]
        at = end


def parse_event(event: bytes) -> tuple[str, bytes]:
    """One event -> (its `event:` name or '', its data lines joined by \\n)."""
    name, data = "", []
    for line in event.splitlines():
        if line.startswith(b"data:"):
            data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b"event:"):
            name = line[6:].strip().decode("utf-8", "replace")
        elif line == b"data":
            data.append(b"")
    return name, b"\n".join(data)
