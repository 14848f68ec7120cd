"""What a listening client sees of a running call. The call never waits for the listener (A10)."""

import asyncio
import re
from collections.abc import AsyncIterator

from kernel.usage.sse import EventSplitter

_DONE = re.compile(rb"(?:\A|(?<=[\r\n]))data: ?\[DONE\]")


class Live:
    """Events that a generation publishes and a client reads at its own pace, from memory.

    Only whole events go out, over any chunk border. The terminal event is held back until the
    result is saved: a client that saw the end of the stream can rely on the replay.
    """

    def __init__(self) -> None:
        self._splitter = EventSplitter()
        self._pieces: list[bytes] = []
        self._held: list[bytes] = []
        self._last_is_whole = True
        self._wake = asyncio.Event()
        self._ended = False

    def publish(self, chunk: bytes) -> None:
        """Add bytes of the stream, cut anywhere; from the terminal event on they are held."""
        for piece in self._splitter.push(chunk):
            self._last_is_whole = piece.whole
            end = None if self._held else _DONE.search(piece.data)
            at = end.start() if end else 0 if self._held else len(piece.data)
            self._give(piece.data[:at])
            if at < len(piece.data):
                self._held.append(piece.data[at:])

    def end(self, *, tail: bytes = b"", release: bool) -> None:
        """The call is over. `release` gives out what was held; `tail` is our own last event.

        Without `release` an event that was cut in its middle is dropped: behind its bytes a client
        could not read the tail.
        """
        rest = self._splitter.rest()
        if release:
            self._give(b"".join((*self._held, rest)))
        elif not self._last_is_whole:
            tail = b"\n\n" + tail
        self._held = []
        self._give(tail)
        self._ended = True
        self._wake.set()

    async def read(self) -> AsyncIterator[bytes]:
        """All events from the first on, until the end. One listener."""
        position = 0
        while True:
            while position < len(self._pieces):
                piece = self._pieces[position]
                self._pieces[position] = b""
                position += 1
                yield piece
            if self._ended:
                return
            self._wake.clear()
            await self._wake.wait()

    def _give(self, data: bytes) -> None:
        if data:
            self._pieces.append(data)
            self._wake.set()
