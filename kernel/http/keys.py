"""A key on its way out and back: read from the environment, cut out of what a peer says.

Cut as it is and as JSON texts commonly write it, before anybody keeps or shows the answer:
docs/security.md says what that leaves open.
"""

import json
import re
from collections.abc import Mapping

from kernel.errors import NotSent
from kernel.ids import check_key_name

KEY_BYTES_MIN = 8  # a shorter one would be found where nobody quoted it


def key_to_send(
    name: str, *, field: str, whose: str, environ: Mapping[str, str], next_action: str
) -> str:
    """The key in this variable, without spaces around it, which peers would not read either.

    InvalidInput for a variable that may not leave; NotSent `<whose>_key_missing` when it has no
    text, `<whose>_key_unreadable` when it holds bytes that are no UTF-8.
    """
    check_key_name(name, field=field, environ=environ)
    key = environ.get(name, "").strip()
    if not key:
        raise NotSent(
            f"The environment variable {name} is not set.",
            code=f"{whose}_key_missing",
            next_action=next_action,
        )
    if any("\ud800" <= char <= "\udfff" for char in key):  # how Python shows such bytes
        raise NotSent(
            f"The environment variable {name} holds bytes that are no UTF-8.",
            code=f"{whose}_key_unreadable",
            next_action=next_action,
        )
    return key


class KeyFilter:
    """Passes bytes on with `mark` in the place of `key`, the same for any chunking of them.

    What may become the key is held back, at most its length less one, until the next bytes tell.
    """

    def __init__(self, key: bytes, *, mark: bytes) -> None:
        self._forms, self._mark = _forms(key), mark
        self._any = re.compile(b"|".join(map(re.escape, self._forms)))
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes, give those that may go on (b'' is possible)."""
        if not self._forms:
            return chunk
        *whole, tail = self._any.split(self._held + chunk)
        end = min(_begins_at(tail, form) for form in self._forms)
        self._held = tail[end:]
        return self._mark.join([*whole, tail[:end]])

    def finish(self) -> bytes:
        """No more bytes come: `mark` for a cut key that would still tell much of it."""
        held, self._held = self._held, b""
        return held if len(held) < KEY_BYTES_MIN else self._mark


def without_key(text: str, *, key: str, mark: str) -> str:
    """A whole text with `mark` in the place of `key`, or of its beginning where the text ends."""
    # Peers may send lone surrogates in JSON: they must come out as they went in.
    cut = KeyFilter(key.encode("utf-8", "surrogatepass"), mark=mark.encode())
    passed = cut.feed(text.encode("utf-8", "surrogatepass")) + cut.finish()
    return passed.decode("utf-8", "surrogatepass")


def _forms(key: bytes) -> list[bytes]:
    """The key as it is and as JSON may write it: \\/ for /, \\u00fc for what is not ASCII."""
    if len(key) < KEY_BYTES_MIN:
        return []
    escaped = json.dumps(key.decode("utf-8", "replace"))[1:-1].encode()
    forms = [key, escaped]
    return list(dict.fromkeys(forms + [form.replace(b"/", rb"\/") for form in forms]))


def _begins_at(text: bytes, form: bytes) -> int:
    """Where the end of `text` may be the beginning of `form`; its length when nowhere."""
    at = text.find(form[:1], max(0, len(text) - len(form) + 1))
    while at >= 0 and not form.startswith(text[at:]):
        at = text.find(form[:1], at + 1)
    return len(text) if at < 0 else at
