"""A key in a peer's words: cut out whole or over any chunk border, and nothing else is touched."""

import pytest

from kernel.http import KeyFilter, without_key

KEY = b"sk-ssk-s3cret"  # its own beginning stands in it again
MARK = b"[key]"


def passed(*chunks: bytes, key: bytes = KEY) -> bytes:
    cut = KeyFilter(key, mark=MARK)
    return b"".join([*(cut.feed(chunk) for chunk in chunks), cut.finish()])


TEXTS = (
    b"before " + KEY + b" after",
    KEY,
    KEY + KEY + b"sk-s" + KEY,
    b"sk-" + KEY + b"sk-ssk-s3cre",  # the last one is not whole
    b"nothing to see here\n\n",
    b"",
)


@pytest.mark.parametrize("text", TEXTS)
def test_it_is_cut_out_the_same_at_every_split(text: bytes) -> None:
    whole = text.replace(KEY, MARK)
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            assert passed(text[:first], text[first:second], text[second:]) == whole
    assert passed(*(bytes([one]) for one in text)) == whole


def test_only_what_may_become_the_key_waits() -> None:
    cut = KeyFilter(KEY, mark=MARK)
    assert cut.feed(b"data: sk\n\n") == b"data: sk\n\n"
    assert cut.feed(b"data: sk-s") == b"data: "
    assert cut.feed(b"k is short\n\n") == b"sk-sk is short\n\n"
    assert cut.feed(KEY[:-1]) == b""
    assert cut.finish() == KEY[:-1]
    assert cut.finish() == b""


def test_a_chunk_without_it_is_passed_on_uncopied() -> None:
    chunk = b"data: " + bytes(1000)
    assert KeyFilter(KEY, mark=MARK).feed(chunk) is chunk


def test_what_is_too_short_to_be_a_key_is_not_looked_for() -> None:
    assert passed(b"a short one", key=b"short") == b"a short one"
    assert passed(b"anything", key=b"") == b"anything"
    assert without_key("a short one", key="short", mark="-") == "a short one"
    assert without_key("said sk-ssk-s3cret!", key=KEY.decode(), mark="-") == "said -!"
