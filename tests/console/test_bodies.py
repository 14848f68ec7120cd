"""Bodies are shown within a byte budget, with their true size, unchanged (E3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.bodies import body_view, cut_utf8, json_tokens

JSON = "application/json"


@given(st.text(), st.integers(0, 200))
def test_a_body_is_cut_on_a_character_border(text, bytes_max):
    cut = cut_utf8(text.encode("utf-8", "surrogatepass"), bytes_max=bytes_max)
    assert len(cut) <= bytes_max or bytes_max == 0
    assert text.encode("utf-8", "surrogatepass").startswith(cut)
    cut.decode("utf-8", "surrogatepass")


def test_the_true_size_is_shown_beside_the_cut():
    view = body_view(b"x" * 100, bytes_max=10, total_bytes=5_000)
    assert (view.shown_bytes, view.total_bytes, view.is_cut) == (10, 5_000, True)


def test_json_is_laid_out_without_changing_a_token():
    view = body_view(b'{"a":1.50,"a":2e3,"list":[],"t":"x\\n"}', content_type=JSON, bytes_max=999)
    assert view.layout == "json"
    for kept in ("1.50", "2e3", "[]", "\\n"):
        assert kept in view.html
    assert view.html.count("&quot;a&quot;") == 2


@pytest.mark.parametrize(
    "text", ['{"a":NaN}', "{'a':1}", '{"a":1', "[1]]", "", "[" * 70 + "]" * 70, '{"a":1} trailing']
)
def test_text_that_is_no_plain_json_is_shown_as_stored(text):
    view = body_view(text.encode(), content_type=JSON, bytes_max=999)
    assert view.layout == "text"


def test_a_cut_json_body_is_shown_as_stored():
    assert body_view(b'{"a":"bcd"}', content_type=JSON, bytes_max=5).layout == "text"


def test_markup_and_hidden_characters_in_json_are_made_harmless_and_visible():
    raw = '{"k":"</pre><script>x</script>\u202e"}'.encode()
    html = body_view(raw, content_type=JSON, bytes_max=999).html
    assert "<script>" not in html
    assert "⟦U+202E⟧" in html
    assert html.count("untrusted-note") == 1


def test_bytes_that_are_no_utf8_are_escaped():
    view = body_view(b"\xff\xfeab", bytes_max=99)
    assert view.layout == "binary"
    assert "\\xff" in view.html


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_every_json_text_keeps_its_tokens(value):
    import json

    text = json.dumps(value, ensure_ascii=False)
    tokens = json_tokens(text)
    assert tokens is not None
    assert json.loads("".join(token for _kind, token in tokens)) == value
