"""Settings that the documents name exist: in the table of limits, or where code reads them."""

import re

from kernel.conf import SETTINGS
from tests.tidy.tree import ROOT, files, text_of

# `BAILING_SCALEOUT_*` names a family, not a setting.
NAME = re.compile(r"\bBAILING_[A-Z0-9_]*[A-Z0-9]\b(?![*_])")
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
SCRIPTS = ("Makefile", ".ci/run")


def test_each_setting_that_a_document_names_exists() -> None:
    known = {f"BAILING_{name.upper()}" for name in SETTINGS}
    for path in files("kernel", "console", "tests"):
        known |= set(NAME.findall(text_of(path)))
    for script in SCRIPTS:
        known |= set(NAME.findall((ROOT / script).read_text()))
    named = {
        (str(path.relative_to(ROOT)), name)
        for path in DOCUMENTS
        for name in NAME.findall(path.read_text())
    }
    assert len(named) > 50
    assert sorted(one for one in named if one[1] not in known) == []
