"""Text for people shows everything it hides (console cases 29, 56, 74; reliability case 73)."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.visible import pieces, visible

HIDDEN = [
    0x00, 0x07, 0x09, 0x1B, 0x7F, 0x85, 0xA0, 0xAD, 0x034F, 0x061C, 0x115F, 0x17B4, 0x180E, 0x200B,
    0x200D, 0x200E, 0x202A, 0x202E, 0x2028, 0x2060, 0x2066, 0x2800, 0x3000, 0x3164, 0xD800, 0xE000,
    0xFE0F, 0xFEFF, 0xFFA0, 0xFFF9, 0xFFFC, 0x1D173, 0xE0041, 0xE0100, 0x10FFFF,
]  # fmt: skip


@pytest.mark.parametrize("point", HIDDEN, ids=lambda point: f"U+{point:04X}")
def test_a_hidden_code_point_is_named(point):
    assert visible(f"a{chr(point)}b") == f"a⟦U+{point:04X}⟧b"


@pytest.mark.parametrize(
    "text",
    [
        "order-1001",
        "Café crème — 12 €",
        "naïve",
        "日本語 テスト",
        "Привет мир",
        "हिन्दी",
        "ภาษาไทย",
        "❤️ 👍",
        "x² ≠ y",
    ],
)
def test_ordinary_text_of_any_language_is_left_alone(text):
    assert visible(text) == text


def test_the_length_is_never_cut():
    text = "a" * 100_000 + "\u202e" + "b" * 100_000
    assert visible(text).count("b") == 100_000


def test_padding_that_pushes_a_command_out_of_sight_is_counted():
    assert visible("ls" + " " * 240 + "; rm -rf /") == "ls⟦240 spaces⟧; rm -rf /"
    assert visible("a" + "\n" * 50 + "b") == "a⟦50 line breaks⟧\nb"


def test_indentation_of_code_is_left_alone():
    assert visible("if x:\n                    y()") == "if x:\n                    y()"


def test_a_pile_of_combining_marks_is_shown_as_escapes_after_the_third():
    shown = visible("Z" + "\u0301" * 40 + "x")
    assert shown.count("⟦U+0301⟧") == 37
    assert shown.endswith("⟧x")


def test_a_mark_without_a_base_is_an_escape():
    assert visible("\u0301a") == "⟦U+0301⟧a"
    assert visible("a \u0301") == "a ⟦U+0301⟧"


@given(st.text(alphabet=st.characters(codec=None)))
def test_nothing_invisible_ever_reaches_the_page(text):
    for piece in pieces(text):
        for char in piece.text:
            category = unicodedata.category(char)
            assert char == "\n" or category not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
            assert category != "Zs" or char == " "
    visible(text).encode("utf-8")


@given(st.text())
def test_text_between_escapes_is_the_original_in_order(text):
    shown = "".join(piece.text for piece in pieces(text) if piece.kind == "text")
    rest = iter(text)
    assert all(char in rest for char in shown)
