"""What a listening client sees of a running call. The call never waits for the listener (A10)."""

import asyncio
from collections.abc import AsyncIterator


class Live:
    """Bytes that a generation publishes and a client reads at its own pace, from memory.

    The terminal event is held back until the result is saved: a client that saw the end of the stream
    can rely on the replay.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._wake = asyncio.Event()
        self._ended = False
        self._held: list[bytes] = []
        self._holding = False

    def publish(self, piece: bytes) -> None:
        """Add bytes of the stream; from the terminal event on they are held."""
        if not piece:
            return
        if self._holding or b"[DONE]" in piece:
            self._holding = True
            self._held.append(piece)
            return
        self._pieces.append(piece)
        self._wake.set()

    def end(self, *, tail: bytes = b"", release: bool) -> None:
        """The call is over. `release` gives out what was held; `tail` is our own last event."""
        if release:
            self._pieces += self._held
        self._held = []
        if tail:
            self._pieces.append(tail)
        self._ended = True
        self._wake.set()

    async def read(self) -> AsyncIterator[bytes]:
        """All pieces from the first on, until the end. One listener."""
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
            if position == len(self._pieces) and not self._ended:
                await self._wake.wait()
