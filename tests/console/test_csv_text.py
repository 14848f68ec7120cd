"""Exported tables are shown by a spreadsheet and never run (console case 71)."""

import pytest

from console.csv_text import csv_lines, safe_cell


@pytest.mark.parametrize(
    "hostile",
    [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "  =1",
        "\u00a0=1",
        "＝1",
        "＋1",
        "－1",
        "＠x",
        '=HYPERLINK("http://x")',
    ],
)
def test_a_text_that_could_start_a_formula_stands_behind_an_apostrophe(hostile):
    assert safe_cell(hostile) == f"'{hostile}"


@pytest.mark.parametrize("value", [-5, 0, 1.5, "plain", "a=b", "5-3", "", None])
def test_numbers_and_plain_texts_stay_as_they_are(value):
    assert safe_cell(value) == ("" if value is None else value)


def test_a_cell_cannot_leave_its_place():
    text = csv_lines([['a"b,c\nd', "x\x00y"]])
    assert text == '"a""b,c\nd",x\ufffdy\r\n'
