"""A progress bar on stderr for long work; silent where nobody looks at a terminal."""

import sys
import time
from typing import TextIO

WIDTH = 30
REDRAW_SECONDS = 0.2


class ProgressBar:
    """`with ProgressBar("Rows", total) as bar: bar.add(500)`. It draws on a terminal only."""

    def __init__(self, what: str, total: int, *, stream: TextIO | None = None):
        self.what, self.total, self.done = what, total, 0
        self._stream = sys.stderr if stream is None else stream
        self._drawn_at = 0.0

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_error: object) -> None:
        if self._drawn_at:
            self._draw()
            self._stream.write("\n")

    def add(self, count: int) -> None:
        """So much more is done."""
        self.done += count
        now = time.monotonic()
        if self._stream.isatty() and now - self._drawn_at >= REDRAW_SECONDS:
            self._draw()
            self._drawn_at = now

    def _draw(self) -> None:
        share = min(self.done / self.total, 1.0) if self.total else 1.0
        bar = ("#" * round(share * WIDTH)).ljust(WIDTH)
        self._stream.write(f"\r{self.what} [{bar}] {self.done:,} of {self.total:,} {share:4.0%}")
        self._stream.flush()
