"""docs/glossary.md: one word per thing, and the names it uses exist."""

import re

from django.apps import apps

from tests.management.running import ROOT

TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| word |")
]


def test_every_row_has_a_word_its_meaning_and_what_not_to_call_it() -> None:
    assert len(ROWS) > 50
    assert [row for row in ROWS if len(row) != 3 or not all(row)] == []


def test_no_word_is_explained_twice() -> None:
    words = [row[0] for row in ROWS]
    assert len(set(words)) == len(words)


def test_the_words_of_the_house_are_there() -> None:
    words = {row[0].partition(" (")[0] for row in ROWS}
    assert words >= {
        *("operation id", "request id", "dispatch", "settle", "unknown", "hold", "fence"),
        *("lease", "meter", "ledger row", "service", "account", "price", "pass", "page"),
        *("continuation", "marker", "admission", "usage owner"),
    }


def test_every_table_it_names_exists() -> None:
    tables = {model._meta.db_table for model in apps.get_models()}
    assert set(re.findall(r"`(bz_\w+)`", TEXT)) <= tables
