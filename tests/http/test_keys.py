"""A key in a peer's words: cut out whole or over any chunk border, and nothing else is touched."""

import json

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
    b"sk-" + KEY + b"sk-ssk-",  # the last one is not whole, and tells little
    b"nothing to see here\n\n",
    b"",
)
SLASHED = "sk-ab/cü/0123"
WRITTEN = (
    SLASHED,
    json.dumps(SLASHED)[1:-1],
    SLASHED.replace("/", "\\/"),
    json.dumps(SLASHED)[1:-1].replace("/", "\\/"),
)


@pytest.mark.parametrize("text", TEXTS)
def test_it_is_cut_out_the_same_at_every_split(text: bytes) -> None:
    whole = text.replace(KEY, MARK)
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            assert passed(text[:first], text[first:second], text[second:]) == whole
    assert passed(*(bytes([one]) for one in text)) == whole


@pytest.mark.parametrize("written", WRITTEN)
def test_it_is_cut_out_as_json_writes_it_at_every_split(written: str) -> None:
    text, key = f'a "{written}" b {written}'.encode(), SLASHED.encode()
    for at in range(len(text) + 1):
        assert passed(text[:at], text[at:], key=key) == b'a "[key]" b [key]'
    assert passed(*(bytes([one]) for one in text), key=key) == b'a "[key]" b [key]'
    assert without_key(text.decode(), key=SLASHED, mark="[key]") == 'a "[key]" b [key]'


@pytest.mark.parametrize("written", WRITTEN)
def test_an_answer_that_ends_inside_it_does_not_tell_most_of_it(written: str) -> None:
    key = SLASHED.encode()
    for end in range(8, len(written.encode())):
        cut = b"said " + written.encode()[:end]
        assert passed(cut, key=key) == b"said [key]"
        assert passed(cut[:7], cut[7:], key=key) == b"said [key]"
    assert passed(b"said sk-ab/c", key=key) == b"said sk-ab/c"
    assert without_key("said sk-ab/cü/012", key=SLASHED, mark="-") == "said -"


def test_a_text_without_it_comes_out_as_it_went_in() -> None:
    for text in ("", "plain", "日本 \U0001f600", "lone \udcff surrogate", "nul \x00"):
        assert without_key(text, key=SLASHED, mark="-") == text


def test_only_what_may_become_the_key_waits() -> None:
    cut = KeyFilter(KEY, mark=MARK)
    assert cut.feed(b"data: sk\n\n") == b"data: sk\n\n"
    assert cut.feed(b"data: sk-s") == b"data: "
    assert cut.feed(b"k is short\n\n") == b"sk-sk is short\n\n"
    assert cut.feed(KEY[:7]) == b""
    assert cut.finish() == KEY[:7]
    assert cut.finish() == b""


def test_a_chunk_without_it_is_passed_on_uncopied() -> None:
    chunk = b"data: " + bytes(1000)
    assert KeyFilter(KEY, mark=MARK).feed(chunk) is chunk


def test_what_is_too_short_to_be_a_key_is_not_looked_for() -> None:
    assert passed(b"a short one", key=b"short") == b"a short one"
    assert passed(b"anything", key=b"") == b"anything"
    assert without_key("a short one", key="short", mark="-") == "a short one"
    assert without_key("said sk-ssk-s3cret!", key=KEY.decode(), mark="-") == "said -!"
