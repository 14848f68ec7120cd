"""A key that a peer quotes is cut out of what it says, before anybody keeps or shows it.

Only where it stands in one piece: docs/security.md says what that leaves open.
"""

KEY_BYTES_MIN = 8  # a shorter one would be found where nobody quoted it


class KeyFilter:
    """Passes bytes on with `mark` in the place of `key`, the same for any chunking of them.

    What may become the key is held back, at most its length less one, until the next bytes tell.
    """

    def __init__(self, key: bytes, *, mark: bytes) -> None:
        self._key, self._mark = key if len(key) >= KEY_BYTES_MIN else b"", mark
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes, give those that may go on (b'' is possible)."""
        if not self._key:
            return chunk
        *whole, tail = (self._held + chunk).split(self._key)
        at = tail.find(self._key[:1], max(0, len(tail) - len(self._key) + 1))
        while at >= 0 and not self._key.startswith(tail[at:]):
            at = tail.find(self._key[:1], at + 1)
        end = len(tail) if at < 0 else at
        self._held = tail[end:]
        return self._mark.join([*whole, tail[:end]])

    def finish(self) -> bytes:
        """No more bytes come: what was held is not the key."""
        held, self._held = self._held, b""
        return held


def without_key(text: str, *, key: str, mark: str) -> str:
    """A whole text with `mark` in the place of `key`."""
    return text.replace(key, mark) if len(key) >= KEY_BYTES_MIN else text
