"""The operations documents name only commands, options, targets, settings and files that exist."""

import argparse
import re
from functools import cache
from pathlib import Path

import pytest
from django.core.management import load_command_class

from kernel import metrics
from tests.ops.test_deployment import NAME, settings_that_are_read
from tests.tidy.tree import ROOT

DOCUMENTS = [*sorted((ROOT / "docs" / "operations").glob("*.md")), ROOT / "README.md"]
OURS = {
    "install",
    "upgrade",
    "back-up-and-restore",
    "stuck-work",
    "unknown-outcomes",
    "dead-letters",
    "metrics",
    "scale-out",
}
COMMAND = re.compile(r"manage\.py ([a-z_]+)((?: (?:--)?[\w.@/:=-]+)*)")
TARGET = re.compile(r"\bmake ([a-z-]+)\b")
LINK = re.compile(r"\]\(([^)#:]+)\)")
METRIC = re.compile(r"`(bailing_\w+)")
DJANGOS = {"help", "collectstatic"}
# Words after `make` that are prose.
PROSE = {"every", "more", "it", "them", "one", "room", "sure", "a", "the"}


@cache
def parsers(name: str) -> dict[str, argparse.ArgumentParser]:
    """The command's own parser under '', and those of its acts."""
    assert (ROOT / "kernel" / "management" / "commands" / f"{name}.py").is_file(), name
    parser = load_command_class("kernel", name).create_parser("manage.py", name)
    found = {"": parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found.update(action.choices)
    return found


def commands(text: str) -> list[tuple[str, list[str]]]:
    joined = re.sub(r"\s*\\\n\s*", " ", text)
    return [(name, rest.split()) for name, rest in COMMAND.findall(joined) if name not in DJANGOS]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_every_command_act_and_option_exists(path: Path) -> None:
    for name, words in commands(path.read_text()):
        known = parsers(name)
        act = words[0] if words and words[0] in known else ""
        plain = [word for word in words if not word.startswith("--")]
        if len(known) > 1 and plain:
            assert act, f"{name} has no act {plain[0]}"
        options = known[act]._option_string_actions
        wrong = [
            word for word in words if word.startswith("--") and word.split("=")[0] not in options
        ]
        assert wrong == [], f"manage.py {name} {act} takes no {wrong}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_every_target_setting_and_link_exists(path: Path) -> None:
    text = path.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {name for name in TARGET.findall(text) if name not in PROSE} - targets == set()
    named = {name for name in NAME.findall(text) if not name.startswith("BAILING_SCALEOUT_")}
    assert named - settings_that_are_read() == set()
    missing = [link for link in LINK.findall(text) if not (path.parent / link).exists()]
    assert missing == []


def test_the_documents_of_operations_are_there_and_short() -> None:
    stems = {path.stem for path in DOCUMENTS}
    assert stems >= OURS
    for stem in OURS - {"scale-out"}:
        lines = (ROOT / "docs" / "operations" / f"{stem}.md").read_text().splitlines()
        assert len(lines) <= 130, stem


def test_every_metric_is_described_and_every_described_one_is_in_the_source() -> None:
    text = (ROOT / "docs" / "operations" / "metrics.md").read_text()
    described = {name.removesuffix("_total") for name in METRIC.findall(text)}
    source = Path(metrics.__file__).read_text()
    families = set(re.findall(r'"(bailing_[a-z_]+)"', source))
    families |= {"bailing_settlement_page", "bailing_continuation_page"}
    assert families - described == set()
    assert described - families == set()


def test_the_rules_would_bite() -> None:
    assert commands("`manage.py job fly ID`") == [("job", ["fly", "ID"])]
    assert "fly" not in parsers("job")
    assert "--fast" not in parsers("db_init")[""]._option_string_actions
