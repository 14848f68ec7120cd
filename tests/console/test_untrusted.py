"""Untrusted text on pages: marked up, and what misleads is said (console cases 29, 56, 74)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.untrusted import to_html, warnings


@pytest.mark.parametrize("point", ["\u202e", "\u200b", "\u2028", "\x07"], ids=ascii)
def test_a_hidden_code_point_is_announced(point):
    assert warnings(f"a{point}b") == ["1 hidden part made visible"]


@pytest.mark.parametrize("text", ["order-1001", "Café crème — 12 €", "हिन्दी", "❤️ 👍"])
def test_ordinary_text_of_any_language_needs_no_words(text):
    assert warnings(text) == []


def test_a_word_that_mixes_alphabets_is_named():
    assert warnings("log in at pаypal") == ["mixes alphabets that look alike: pаypal"]


def test_a_host_that_is_not_plain_ascii_is_shown_in_its_wire_form():
    (_mixed, host) = warnings("https://exаmple.com/pay")
    assert host == "an address is not plain ASCII: xn--exmple-4nf.com"


def test_right_to_left_letters_are_announced():
    assert any("right-to-left" in note for note in warnings("rm שלום"))


def test_markup_is_text():
    assert "<script>" not in to_html("<script>alert(1)</script>")
    assert "&lt;script&gt;" in to_html("<script>alert(1)</script>")
    assert '"x' not in to_html('"x onmouseover=y').replace('class="', "").replace('dir="', "")


def test_inline_text_stays_on_one_line():
    assert "⏎" in to_html("a\nb")
    assert "\n" not in to_html("a\nb")
    assert "a\nb" in to_html("a\nb", block=True)


@given(st.text(alphabet=st.characters(codec=None)))
def test_whatever_comes_can_be_sent_as_a_page(text):
    to_html(text).encode("utf-8")
